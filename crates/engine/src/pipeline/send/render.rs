//! Renders the message content that rows do not store: the HTML of an e-mail and the link of a push. Titles and bodies
//! were rendered when the event was decided. HTML is large and each push has its own link, so both are rendered at the
//! attempt and never stored.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use campanile_channels::Chain;
use campanile_domain::event::Event;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::people::recipient::Recipient;
use campanile_domain::rules::Rules;
use campanile_domain::template::{Renderer, Text};
use campanile_store::{Contexts, SendJob, StoreError};

use crate::Engine;
use crate::blocking::Renderings;

/// What the messages of a batch are rendered from. Empty if their rows contain everything.
#[derive(Debug, Default)]
pub struct Contents {
    loaded: Option<(Contexts, Arc<Rules>)>,
    /// Events for which a template took too long, with the error. Their other messages are not rendered.
    too_slow: Mutex<HashMap<EventId, String>>,
}

/// The contents of a message other than its title and body.
#[derive(Debug, Default)]
pub struct Written {
    pub html: Option<String>,
    pub url: Option<String>,
}

/// Loads the contents of these messages with one query. Captured e-mails are rendered, too: a faulty template is
/// noticed before there is a mail server.
pub async fn contents<'a>(
    engine: &Engine,
    chain: &Chain,
    jobs: impl Iterator<Item = &'a SendJob> + Clone,
) -> Result<Contents, StoreError> {
    let rules = engine.rules.current();
    let needs_event = |job: &&SendJob| {
        let (channel, facts) = (job.key.channel, job.key.channel.facts());
        (facts.html && rules.templates.has_html(&job.event_type, channel))
            || (facts.link && rules.templates.has_url(&job.event_type, channel))
    };
    // Captured messages do not need the name.
    let needs_name = |job: &&SendJob| job.key.channel.facts().recipient_name && !chain.captures();
    let of_interest = |job: &&SendJob| needs_event(job) || needs_name(job);
    let users: BTreeSet<_> = jobs.clone().filter(of_interest).map(|job| &job.user).collect();
    if users.is_empty() {
        return Ok(Contents::default());
    }
    let events: BTreeSet<_> = jobs.filter(needs_event).map(|job| &job.event_id).collect();
    let (events, users) = (events.into_iter().cloned().collect(), users.into_iter().cloned().collect());
    let contexts = engine.store.contexts(events, users).await?;
    Ok(Contents { loaded: Some((contexts, rules)), too_slow: Mutex::default() })
}

impl Contents {
    /// The recipient's name, if the recipient still exists.
    pub fn name(&self, user: &UserRef) -> Option<&str> {
        let (contexts, _) = self.loaded.as_ref()?;
        contexts.recipients.get(user)?.name.as_deref()
    }

    /// Renders the HTML or the link, if the channel has one. The result is empty if the template has neither, or if the
    /// recipient or the event no longer exists. Such a message is sent with the content of its row. An error names the
    /// template, line and variable.
    pub async fn write(&self, job: &SendJob, renderings: &Renderings) -> Result<Written, String> {
        let facts = job.key.channel.facts();
        if !facts.html && !facts.link {
            return Ok(Written::default());
        }
        let Some((rules, person, event)) = self.context(job) else { return Ok(Written::default()) };
        renderings
            .run(|| {
                if let Some(reason) = self.too_slow().get(&job.event_id) {
                    return Err(reason.clone());
                }
                let renderer = Renderer::new(&rules.templates, &event.event_type, &event.document());
                let written = write(&renderer, job, person);
                if let Err(reason) = &written
                    && renderer.was_too_slow()
                {
                    self.too_slow().insert(job.event_id.clone(), reason.clone());
                }
                written
            })
            .await
    }

    fn too_slow(&self) -> MutexGuard<'_, HashMap<EventId, String>> {
        self.too_slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self, job: &SendJob) -> Option<(&Rules, &Recipient, &Event)> {
        let (contexts, rules) = self.loaded.as_ref()?;
        Some((rules, contexts.recipients.get(&job.user)?, contexts.events.get(&job.event_id)?))
    }
}

fn write(renderer: &Renderer<'_>, job: &SendJob, person: &Recipient) -> Result<Written, String> {
    let (channel, facts) = (job.key.channel, job.key.channel.facts());
    let mut written = Written::default();
    if facts.html {
        let text = Text { title: job.title.clone(), body: job.body.clone() };
        written.html = renderer.html(channel, person, &text)?;
    }
    if facts.link {
        written.url = renderer.url(Some(channel), person)?;
    }
    Ok(written)
}
