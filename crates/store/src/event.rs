//! Accepts events, counts their failures, and closes them. `fan_out` fans them out.

use async_trait::async_trait;
use campanile_domain::event::{Failure, NewEvent};
use campanile_domain::id::{EventId, EventSeq};

use crate::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// For each event whether it is new. A known event with the same body is not new, and that is no error.
    Accepted(Vec<bool>),
    /// The positions of events whose id is known with another body. Nothing was written.
    Conflicts(Vec<usize>),
}

#[async_trait]
pub trait EventStore {
    /// Stores all events or none. The ids in one call are distinct.
    async fn accept(&self, events: Vec<NewEvent>) -> Result<Acceptance, StoreError>;

    /// Counts a failure of an event and returns whether it was given up. After `max` failures it is given up with a
    /// dead letter: `PUBLISHED` if rows were written, else `FAILED`. Rows that were written stay.
    async fn count_failure(&self, seq: EventSeq, failure: Failure, max: u32) -> Result<bool, StoreError>;

    /// Closes candidates that are `PUBLISHED` and whose rows have all been received or have failed. They become
    /// `PROCESSED`.
    async fn close_events(&self, candidates: Vec<EventId>) -> Result<u64, StoreError>;

    /// Closes `PUBLISHED` events. The caller has counted that every row was received. The events become `PROCESSED`.
    async fn close_complete(&self, seqs: Vec<EventSeq>) -> Result<u64, StoreError>;

    /// Open events after `after`, in the order of arrival: events that are `PUBLISHED`, and events whose fan-out has
    /// begun.
    async fn open_events(
        &self,
        after: EventSeq,
        limit: usize,
    ) -> Result<Vec<(EventSeq, EventId)>, StoreError>;
}
