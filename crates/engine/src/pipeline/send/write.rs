//! What messages say beyond their rows. Titles and bodies were written when the event was decided. The HTML of an e-mail is
//! large, and the link of a push is its own, so both are rendered from the event when it is sent, and stored nowhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use campanile_channels::Chain;
use campanile_domain::channel::Channel;
use campanile_domain::event::Event;
use campanile_domain::id::UserRef;
use campanile_domain::recipient::Recipient;
use campanile_domain::rules::Rules;
use campanile_domain::template::{Renderer, Text};
use campanile_store::{Contexts, SendJob, StoreError};

use crate::Engine;

/// What some messages are written from; nothing, where their rows say all.
#[derive(Debug, Default)]
pub struct Contents(Option<(Contexts, Arc<Rules>)>);

/// For all of these, by one look. What is captured is captured as its row has it, so only the HTML is of interest: if it can't be
/// written, that is seen before there is a mail server.
pub async fn contents<'a>(
    engine: &Engine,
    chain: &Chain,
    jobs: impl Iterator<Item = &'a SendJob> + Clone,
) -> Result<Contents, StoreError> {
    let rules = engine.rules.current();
    let needs_event = |job: &&SendJob| match job.key.channel {
        Channel::Email => rules.templates.has_html(&job.event_type, Channel::Email),
        Channel::Push => rules.templates.has_url(&job.event_type, Channel::Push),
        Channel::Sms | Channel::Websocket | Channel::Slack => false,
    };
    // Only an e-mail names its reader.
    let of_interest =
        |job: &&SendJob| needs_event(job) || (job.key.channel == Channel::Email && !chain.captures());
    let users: BTreeSet<_> = jobs.clone().filter(of_interest).map(|job| &job.user).collect();
    if users.is_empty() {
        return Ok(Contents::default());
    }
    let events: BTreeSet<_> = jobs.filter(needs_event).map(|job| &job.event_id).collect();
    let (events, users) = (events.into_iter().cloned().collect(), users.into_iter().cloned().collect());
    let contexts = engine.store.contexts(events, users).await?;
    Ok(Contents(Some((contexts, rules))))
}

impl Contents {
    /// Who it is for, if they are still there.
    pub fn name(&self, user: &UserRef) -> Option<&str> {
        let (contexts, _) = self.0.as_ref()?;
        contexts.people.get(user)?.name.as_deref()
    }

    /// Nothing, where no template has any; and for who has left, or of an event that is gone: they get the letter as its row has it.
    /// An error names template, line and variable.
    pub fn html(&self, job: &SendJob) -> Result<Option<String>, String> {
        if job.key.channel != Channel::Email {
            return Ok(None);
        }
        let Some((rules, person, event)) = self.context(job) else { return Ok(None) };
        let text = Text { title: job.title.clone(), body: job.body.clone() };
        let renderer = Renderer::new(&rules.templates, &event.event_type, &event.document());
        renderer.html(Channel::Email, person, &text)
    }

    /// Where a click on a push leads; as with HTML, nothing where no template says so.
    pub fn url(&self, job: &SendJob) -> Result<Option<String>, String> {
        if job.key.channel != Channel::Push {
            return Ok(None);
        }
        let Some((rules, person, event)) = self.context(job) else { return Ok(None) };
        let renderer = Renderer::new(&rules.templates, &event.event_type, &event.document());
        renderer.url(Some(Channel::Push), person)
    }

    fn context(&self, job: &SendJob) -> Option<(&Rules, &Recipient, &Event)> {
        let (contexts, rules) = self.0.as_ref()?;
        Some((rules, contexts.people.get(&job.user)?, contexts.events.get(&job.event_id)?))
    }
}
