//! Read-only queries for operators: events and their traces, sends, dead letters and captured messages.

use campanile_domain::id::EventId;
use campanile_store::{
    CapturedRow, DeadLetterFilter, EventFilter, EventPage, ListedDeadLetter, SendFilter, SendPage,
    StoreError, Trace, TraceFilter,
};

use crate::Engine;

impl Engine {
    pub async fn search_events(&self, filter: EventFilter) -> Result<EventPage, StoreError> {
        self.store.search_events(filter).await
    }

    pub async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError> {
        self.store.trace(event_id, filter).await
    }

    pub async fn list_sends(&self, filter: SendFilter) -> Result<SendPage, StoreError> {
        self.store.list_sends(filter).await
    }

    pub async fn list_dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> Result<Vec<ListedDeadLetter>, StoreError> {
        self.store.list_dead_letters(filter).await
    }

    /// Messages that the `capture` provider kept, by age.
    pub async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<CapturedRow>, StoreError> {
        self.store.list_captured(event_id, after, limit).await
    }
}
