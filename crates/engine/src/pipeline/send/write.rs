//! What messages say beyond their rows. Titles and bodies were written when the event was decided; the HTML of a mail is large, so
//! it is written from the event and its template at the moment of sending, and kept nowhere.

use std::collections::{BTreeSet, HashMap};

use campanile_channels::Chain;
use campanile_domain::channel::Channel;
use campanile_domain::id::EventId;
use campanile_domain::template::{Renderer, Text};
use campanile_store::{SendJob, StoreError};

use crate::Engine;

#[derive(Debug)]
pub enum Writing {
    Ready {
        /// Who it is for.
        name: Option<String>,
        html: Option<String>,
    },
    /// The template fails, and says where.
    Impossible { error: String },
}

impl Default for Writing {
    /// Nothing beyond the row.
    fn default() -> Self {
        Writing::Ready { name: None, html: None }
    }
}

/// One for each, in their order.
pub async fn all<'a>(
    engine: &Engine,
    chain: &Chain,
    jobs: impl Iterator<Item = &'a SendJob> + Clone,
) -> Result<Vec<Writing>, StoreError> {
    // What is captured is captured as its row has it.
    if chain.captures() || jobs.clone().any(|job| job.key.channel != Channel::Email) {
        return Ok(jobs.map(|_| Writing::default()).collect());
    }
    let events: BTreeSet<_> = jobs.clone().map(|job| &job.event_id).collect();
    let users: BTreeSet<_> = jobs.clone().map(|job| &job.user).collect();
    let (events, users) = (events.into_iter().cloned().collect(), users.into_iter().cloned().collect());
    let contexts = engine.store.contexts(events, users).await?;
    let rules = engine.rules.current();
    let renderers: HashMap<&EventId, Renderer> = contexts
        .events
        .iter()
        .map(|(id, event)| (id, Renderer::new(&rules.templates, &event.event_type, &event.document())))
        .collect();
    let write = |job: &SendJob| {
        // Who has left, or an event that is gone, gets the letter as its row has it.
        let Some(person) = contexts.people.get(&job.user) else { return Writing::default() };
        let name = person.name.clone();
        let Some(renderer) = renderers.get(&job.event_id) else { return Writing::Ready { name, html: None } };
        let text = Text { title: job.title.clone(), body: job.body.clone() };
        match renderer.html(job.key.channel, person, &text) {
            Ok(html) => Writing::Ready { name, html },
            Err(error) => Writing::Impossible { error },
        }
    };
    Ok(jobs.map(write).collect())
}
