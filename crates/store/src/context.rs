//! Reads the data that a template needs when a message is sent: the event and the recipient of the message.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::event::Event;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::people::recipient::Recipient;

use crate::StoreError;

#[derive(Debug, Default)]
pub struct Contexts {
    pub events: HashMap<EventId, Event>,
    /// The recipients that still exist and are active.
    pub recipients: HashMap<UserRef, Recipient>,
}

#[async_trait]
pub trait ContextStore {
    /// Reads these events and users. Deleted ones are left out.
    async fn contexts(&self, events: Vec<EventId>, users: Vec<UserRef>) -> Result<Contexts, StoreError>;
}
