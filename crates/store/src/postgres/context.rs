//! Reads the data that a template needs when a message is sent.

use async_trait::async_trait;
use campanile_domain::fan_out::Page;
use campanile_domain::id::{EventId, UserRef};

use super::{Params, Postgres, audience, query, statement};
use crate::decode;
use crate::{ContextStore, Contexts, StoreError};

#[async_trait]
impl ContextStore for Postgres {
    async fn contexts(&self, events: Vec<EventId>, users: Vec<UserRef>) -> Result<Contexts, StoreError> {
        let client = self.client().await?;
        let ids: Vec<&str> = events.iter().map(EventId::as_str).collect();
        let pages: Vec<Page> = users.into_iter().map(Page::of_user).collect();
        let ids: Params = &[&ids];
        let (events, recipients) = tokio::try_join!(
            query(&client, statement::KNOWN_EVENT, ids),
            audience::recipients(&client, &pages),
        )?;
        let events = events
            .iter()
            .map(|row| decode::decided_event(row, "priority").map(|event| (event.event_id.clone(), event)));
        Ok(Contexts {
            events: events.collect::<Result<_, _>>()?,
            recipients: recipients.into_iter().flatten().map(|person| (person.user(), person)).collect(),
        })
    }
}
