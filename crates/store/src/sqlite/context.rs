//! Reads the data that a template needs when a message is sent.

use async_trait::async_trait;
use campanile_domain::fan_out::Page;
use campanile_domain::id::{EventId, UserRef};
use rusqlite::named_params;

use super::{Sqlite, audience, statement};
use crate::decode;
use crate::{ContextStore, Contexts, StoreError};

#[async_trait]
impl ContextStore for Sqlite {
    async fn contexts(&self, events: Vec<EventId>, users: Vec<UserRef>) -> Result<Contexts, StoreError> {
        self.read(move |session| {
            let mut contexts = Contexts::default();
            for event_id in events {
                let params = named_params! { ":event_id": event_id.as_str() };
                let event = session
                    .first(statement::KNOWN_EVENT, params, |row| decode::decided_event(row, "priority"))?;
                contexts.events.extend(event.map(|event| (event_id, event)));
            }
            for user in users {
                let person = audience::recipients(session, &Page::of_user(user.clone()))?.pop();
                contexts.recipients.extend(person.map(|person| (user, person)));
            }
            Ok(contexts)
        })
        .await
    }
}
