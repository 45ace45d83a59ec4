//! Replays dead letters. The store moves failed events, rows and sends back to the stage where they failed. If a text
//! could not be rendered when its event was decided, this module renders it with the current templates.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::people::recipient::Recipient;
use campanile_domain::replay::RowText;
use campanile_domain::template::Renderer;
use campanile_store::{
    DeadLetterFilter, DeadLetterRow, ListedDeadLetter, Replayed, RerenderedTexts, Store, StoreError,
};

use crate::Engine;

/// The limits of one call of [`Engine::replay`].
#[derive(Debug, Clone, Copy)]
pub struct ReplayLimits {
    pub dead_letters: usize,
    /// The maximum number of dead letters per transaction.
    pub batch: usize,
    /// No batch begins after this time.
    pub timeout: Duration,
}

impl Engine {
    /// Replays the dead letters that match the filter, batch by batch. Dead letters written after the call began are
    /// left for another call, because otherwise one call might never end. If a batch fails, earlier batches stay
    /// replayed and the error is returned.
    pub async fn replay(
        &self,
        filter: DeadLetterFilter,
        limits: ReplayLimits,
        actor: &Actor,
    ) -> Result<Replayed, StoreError> {
        let mut total = Replayed { next: Some(filter.after), ..Replayed::default() };
        let walked = self.replay_batches(filter, limits, actor, &mut total).await;
        if total.replayed > 0 {
            self.wake();
        }
        walked.map(|()| total)
    }

    async fn replay_batches(
        &self,
        filter: DeadLetterFilter,
        limits: ReplayLimits,
        actor: &Actor,
        total: &mut Replayed,
    ) -> Result<(), StoreError> {
        let (begun, mut remaining) = (Instant::now(), limits.dead_letters);
        let until = Some(self.store.now().await?);
        while let Some(after) = total.next.filter(|_| remaining > 0 && begun.elapsed() < limits.timeout) {
            let batch =
                DeadLetterFilter { until, after, limit: remaining.min(limits.batch), ..filter.clone() };
            remaining -= batch.limit;
            let rerendered = self.rerendered(&batch).await?;
            let Replayed { replayed, skipped, next } = self.store.replay(batch, rerendered, actor).await?;
            total.replayed += replayed;
            total.skipped.extend(skipped);
            total.next = next;
        }
        Ok(())
    }

    async fn rerendered(&self, filter: &DeadLetterFilter) -> Result<RerenderedTexts, StoreError> {
        if filter.stage.as_deref().is_some_and(|stage| stage != "fan_out") {
            return Ok(RerenderedTexts::new());
        }
        let unwritten = unwritten(self.store.as_ref(), filter).await?;
        if unwritten.is_empty() {
            return Ok(RerenderedTexts::new());
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
            let renderer =
                renderers.get_mut(&row.event_id).ok_or("the event has been deleted by retention")?;
            let person =
                contexts.recipients.get(&row.user).ok_or("the recipient does not exist or is not active")?;
            text(renderer, row.channel, person)
        };
        Ok(unwritten.iter().map(|row| (row.dead_letter_id, text(row, &mut renderers))).collect())
    }
}

/// Finds rows without a text among the dead letters that the next batch reads. Rows of later dead letters are rendered
/// with their own batch.
async fn unwritten(store: &dyn Store, filter: &DeadLetterFilter) -> Result<Vec<Unwritten>, StoreError> {
    let dead_letters =
        store.list_dead_letters(DeadLetterFilter { replayed: false, ..filter.clone() }).await?;
    Ok(dead_letters.into_iter().filter_map(Unwritten::of).collect())
}

fn text(renderer: &mut Renderer, channel: Channel, person: &Recipient) -> Result<RowText, String> {
    let text = renderer.render(Some(channel), person)?;
    let inbox = renderer.render(None, person).ok().filter(|inbox| *inbox != text);
    Ok(RowText { text, inbox })
}

/// A row that has no text.
#[derive(Debug)]
struct Unwritten {
    dead_letter_id: i64,
    event_id: EventId,
    user: UserRef,
    channel: Channel,
}

impl Unwritten {
    fn of(dead_letter: ListedDeadLetter) -> Option<Self> {
        let DeadLetterRow { id, stage, event_id, recipient_type, recipient_id, channel, .. } =
            dead_letter.row;
        (stage == "fan_out").then_some(())?;
        Some(Unwritten {
            dead_letter_id: id,
            event_id: event_id?,
            user: UserRef { user_type: recipient_type?, user_id: recipient_id? },
            channel: *channel?.typed()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use campanile_store::conformance::TestDatabase;
    use campanile_store::sqlite::test_database::File;
    use campanile_store::sqlite::{Clock, Sqlite};

    use super::*;

    #[tokio::test]
    async fn a_batch_renders_its_own_dead_letters_again_and_no_later_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (path, clock) = (folder.path().join("campanile.db"), Clock::default());
        let store = Sqlite::open_with_clock(&path, clock.clone()).unwrap();
        let dead_letter = |id: u32, stage: &str| {
            format!(
                "({id}, '{stage}', 'a', 'CUSTOMER', '{id}', 'EMAIL', 'R', 'why', '2026-01-21T10:15:30.000Z')"
            )
        };
        // Dead letters 2 and 12 have no text and lie between sends. All dead letters above 20 have no text.
        let dead_letters: Vec<String> = (1..=100)
            .map(|id| dead_letter(id, if id == 2 || id == 12 || id > 20 { "fan_out" } else { "send" }))
            .collect();
        let insert = format!(
            "INSERT INTO dead_letter
                 (id, stage, event_id, recipient_type, recipient_id, channel, reason, error, created_at)
             VALUES {}",
            dead_letters.join(", ")
        );
        File { path, clock }.execute(&insert).await;
        let ids = async |after: i64, stage: Option<&str>| {
            let filter = DeadLetterFilter {
                after,
                limit: 10,
                stage: stage.map(str::to_owned),
                ..DeadLetterFilter::default()
            };
            let found = unwritten(&store, &filter).await.unwrap();
            found.iter().map(|row| row.dead_letter_id).collect::<Vec<_>>()
        };
        assert_eq!(ids(0, None).await, [2]);
        assert_eq!(ids(10, None).await, [12]);
        assert_eq!(ids(20, None).await, (21..=30).collect::<Vec<_>>());
        assert_eq!(ids(0, Some("fan_out")).await, [2, 12, 21, 22, 23, 24, 25, 26, 27, 28]);
    }
}
