//! What a message is written from at the moment of sending: the event that it is about, and the person that it is for.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::event::Event;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::people::recipient::Recipient;

use crate::StoreError;

#[derive(Debug, Default)]
pub struct Contexts {
    pub events: HashMap<EventId, Event>,
    /// Who is still there, and active.
    pub recipients: HashMap<UserRef, Recipient>,
}

#[async_trait]
pub trait ContextStore {
    /// Of these events and users, what is there.
    async fn contexts(&self, events: Vec<EventId>, users: Vec<UserRef>) -> Result<Contexts, StoreError>;
}
