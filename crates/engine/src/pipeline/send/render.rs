//! Renders what messages contain beyond their rows: the HTML of an e-mail and the link of a push. Titles and bodies
//! were rendered when the event was decided. HTML is large and each push has its own link, so both are rendered at the
//! attempt and never stored.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use campanile_channels::Chain;
use campanile_domain::channel::Channel;
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

/// The contents beside title and body.
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
    let needs_event = |job: &&SendJob| match job.key.channel {
        Channel::Email => rules.templates.has_html(&job.event_type, Channel::Email),
        Channel::Push => rules.templates.has_url(&job.event_type, Channel::Push),
        Channel::Sms | Channel::Websocket | Channel::Slack => false,
    };
    // Only an e-mail contains the recipient's name, and captured messages do not need it.
    let of_interest =
        |job: &&SendJob| needs_event(job) || (job.key.channel == Channel::Email && !chain.captures());
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

    /// Renders the HTML of an e-mail or the link of a push. The result is empty if the template has neither, or if the
    /// recipient or the event no longer exists. Such a message goes out as its row has it. An error names the template,
    /// line and variable.
    pub async fn write(&self, job: &SendJob, renderings: &Renderings) -> Result<Written, String> {
        if !matches!(job.key.channel, Channel::Email | Channel::Push) {
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
    let text = || Text { title: job.title.clone(), body: job.body.clone() };
    Ok(match job.key.channel {
        Channel::Email => Written { html: renderer.html(Channel::Email, person, &text())?, url: None },
        Channel::Push => Written { html: None, url: renderer.url(Some(Channel::Push), person)? },
        Channel::Sms | Channel::Websocket | Channel::Slack => Written::default(),
    })
}
