//! What messages say beyond their rows. Titles and bodies were written when the event was decided. The HTML of an
//! e-mail is large, and the link of a push is its own, so both are rendered from the event when it is sent, and stored
//! nowhere.

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

/// What some messages are written from; nothing, where their rows say all.
#[derive(Debug, Default)]
pub struct Contents {
    loaded: Option<(Contexts, Arc<Rules>)>,
    /// Events for which a template took too long, and why. Their other messages are not tried.
    too_slow: Mutex<HashMap<EventId, String>>,
}

/// Beside title and body.
#[derive(Debug, Default)]
pub struct Written {
    pub html: Option<String>,
    pub url: Option<String>,
}

/// For all of these, by one look. What is captured is captured as its row has it, with its HTML: if that can't be
/// written, it is seen before there is a mail server.
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
    Ok(Contents { loaded: Some((contexts, rules)), too_slow: Mutex::default() })
}

impl Contents {
    /// Who it is for, if they are still there.
    pub fn name(&self, user: &UserRef) -> Option<&str> {
        let (contexts, _) = self.loaded.as_ref()?;
        contexts.recipients.get(user)?.name.as_deref()
    }

    /// The HTML of an e-mail and the link of a push, by rendering; nothing where no template has any, and for who has
    /// left, or of an event that is gone: they get the message as its row has it. An error names template, line and
    /// variable.
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
