//! How events enter.

use async_trait::async_trait;
use campanile_domain::event::{Failure, NewEvent};
use campanile_domain::id::{EventId, EventSeq};

use crate::StoreError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// For each event whether it is new; a known one with the same body is not, and that is fine.
    Accepted(Vec<bool>),
    /// The positions of events whose id is known with another body. Nothing was written.
    Conflicts(Vec<usize>),
}

#[async_trait]
pub trait EventStore {
    /// All or nothing. Ids inside one call are distinct.
    async fn accept(&self, events: Vec<NewEvent>) -> Result<Acceptance, StoreError>;

    /// Counts a failure against an event; after `max` it is given up with a dead letter. It is `FAILED` then, or
    /// `PUBLISHED` if some were told already: what was written stays. Answers whether it was given up.
    async fn count_failure(&self, seq: EventSeq, failure: Failure, max: u32) -> Result<bool, StoreError>;

    /// `PUBLISHED` events of these whose every row was received or failed become `PROCESSED`.
    async fn close_events(&self, candidates: Vec<EventId>) -> Result<u64, StoreError>;

    /// `PUBLISHED` events of these become `PROCESSED`: whoever counted their rows knows that every one was received.
    async fn close_complete(&self, seqs: Vec<EventSeq>) -> Result<u64, StoreError>;

    /// Events that are not closed, in the order of their arrival, behind `after`: `PUBLISHED`, or their fan-out has
    /// begun.
    async fn open_events(
        &self,
        after: EventSeq,
        limit: usize,
    ) -> Result<Vec<(EventSeq, EventId)>, StoreError>;
}
