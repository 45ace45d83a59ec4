//! Reading what happened: the trace of one event, the list of events, and what was captured.

use async_trait::async_trait;
use campanile_domain::event::Event;
use campanile_domain::id::{EventId, UserRef};
use campanile_domain::status::EventStatus;
use serde_json::Value;

use crate::{FanOutClaim, JsonRow, StoreError};

/// Which part of a trace: one user only, or the users behind `after`; at most `limit` of them.
#[derive(Debug, Clone, Default)]
pub struct TraceFilter {
    pub user: Option<UserRef>,
    pub after: Option<UserRef>,
    pub limit: usize,
}

/// What happened to one event. Rows have the column names of their tables.
#[derive(Debug)]
pub struct Trace {
    pub event: JsonRow,
    pub processed: Option<JsonRow>,
    /// Decisions as they were stored; absent for large audiences.
    pub decisions: Option<Value>,
    /// Name and role of everybody in the decisions, as they are now.
    pub people: Vec<JsonRow>,
    pub outbox: Vec<JsonRow>,
    pub notifications: Vec<JsonRow>,
    pub sends: Vec<JsonRow>,
    pub dead_letters: Vec<JsonRow>,
    pub next: Option<UserRef>,
}

#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub status: Option<EventStatus>,
    pub event_type: Option<String>,
    /// Only events that arrived behind this one (oldest first), or before it (newest first).
    pub after: Option<i64>,
    pub newest_first: bool,
    pub limit: usize,
}

#[async_trait]
pub trait TraceStore {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError>;

    async fn list_events(&self, filter: EventFilter) -> Result<Vec<JsonRow>, StoreError>;

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<JsonRow>, StoreError>;

    /// A view of the recipients as they are now, for an event that need not be stored. It can't be committed.
    async fn look_up(&self, event: Event) -> Result<Box<dyn FanOutClaim>, StoreError>;
}
