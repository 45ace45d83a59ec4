//! Dead letters sent on their way again. The store puts back what failed; here is written anew what could not be written when its event
//! was decided, by the templates of now.

use std::collections::{BTreeSet, HashMap};

use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, UserId, UserRef, UserTypeName};
use campanile_domain::recipient::Recipient;
use campanile_domain::template::Renderer;
use campanile_store::{DeadLetterFilter, JsonRow, Replayed, Rewritten, RowText, StoreError};

use crate::Engine;

impl Engine {
    pub async fn replay(&self, filter: DeadLetterFilter) -> Result<Replayed, StoreError> {
        let rewritten = self.rewritten(&filter).await?;
        self.store.replay(filter, rewritten).await
    }

    async fn rewritten(&self, filter: &DeadLetterFilter) -> Result<Rewritten, StoreError> {
        if filter.stage.as_deref().is_some_and(|stage| stage != "fan_out") {
            return Ok(Rewritten::new());
        }
        // Only rows without a text are written anew; the other letters are read by the replay itself.
        let unwritten = DeadLetterFilter { stage: Some("fan_out".to_owned()), ..filter.clone() };
        let letters = self.store.list_dead_letters(unwritten).await?;
        let unwritten: Vec<Unwritten> = letters.iter().filter_map(Unwritten::of).collect();
        if unwritten.is_empty() {
            return Ok(Rewritten::new());
        }
        let events: BTreeSet<_> = unwritten.iter().map(|row| row.event_id.clone()).collect();
        let users: BTreeSet<_> = unwritten.iter().map(|row| row.user.clone()).collect();
        let contexts = self.store.contexts(events.into_iter().collect(), users.into_iter().collect()).await?;
        let rules = self.rules.current();
        let mut renderers: HashMap<&EventId, Renderer> = contexts
            .events
            .iter()
            .map(|(id, event)| (id, Renderer::new(&rules.templates, &event.event_type, &event.document())))
            .collect();
        let text = |row: &Unwritten, renderers: &mut HashMap<&EventId, Renderer>| {
            let renderer = renderers.get_mut(&row.event_id).ok_or("its event is not kept any more")?;
            let person =
                contexts.people.get(&row.user).ok_or("the recipient is not there any more, or not active")?;
            text(renderer, row.channel, person)
        };
        Ok(unwritten.iter().map(|row| (row.letter, text(row, &mut renderers))).collect())
    }
}

fn text(renderer: &mut Renderer, channel: Channel, person: &Recipient) -> Result<RowText, String> {
    let text = renderer.render(Some(channel), person)?;
    let inbox = renderer.render(None, person).ok().filter(|inbox| *inbox != text);
    Ok(RowText { text, inbox })
}

/// A row that has no text.
struct Unwritten {
    letter: i64,
    event_id: EventId,
    user: UserRef,
    channel: Channel,
}

impl Unwritten {
    fn of(letter: &JsonRow) -> Option<Self> {
        let text = |column: &str| letter.get(column)?.as_str();
        (text("stage")? == "fan_out").then_some(())?;
        Some(Unwritten {
            letter: letter.get("id")?.as_i64()?,
            event_id: EventId::stored(text("event_id")?),
            user: UserRef {
                user_type: UserTypeName::stored(text("recipient_type")?),
                user_id: UserId::stored(text("recipient_id")?),
            },
            channel: text("channel")?.parse().ok()?,
        })
    }
}
