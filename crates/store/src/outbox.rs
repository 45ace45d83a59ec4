//! The second outbox on its way to the broker: chunks of rows that wait to be published.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, EventSeq, SendKey, UserRef};
use campanile_domain::queue::Queue;

use crate::{Chunk, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkId(pub i64);

/// Where a search for lost rows goes on: behind this event, or within it. By default at the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepublishCursor {
    pub seq: EventSeq,
    /// The last row of that event that was found; without one all of the event is done.
    pub row: Option<(UserRef, Channel)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Republished {
    pub rows: u64,
    /// Unless that was the last page.
    pub next: Option<RepublishCursor>,
}

impl RepublishCursor {
    /// Only events behind this one are looked at.
    pub(crate) fn after(&self) -> EventSeq {
        if self.row.is_some() { EventSeq(self.seq.0 - 1) } else { self.seq }
    }
}

impl Republished {
    /// Of a page of events, with the last row that was found.
    pub(crate) fn of_page(
        events: &[(EventSeq, EventId)],
        rows: usize,
        last: Option<RepublishCursor>,
        limit: usize,
    ) -> Self {
        let next_page = events.last().filter(|_| events.len() == REPUBLISH_PAGE_EVENTS);
        let next = match last {
            Some(last) if rows >= limit => Some(last),
            _ => next_page.map(|(seq, _)| RepublishCursor { seq: *seq, row: None }),
        };
        Republished { rows: rows as u64, next }
    }
}

/// Of the events that are not closed, how many are looked through for lost rows at a time.
pub(crate) const REPUBLISH_PAGE_EVENTS: usize = 500;

#[async_trait]
pub trait OutboxStore {
    /// The next chunk of the queue that nobody holds, leased; by lane, then by age.
    async fn claim_chunk(&self, queue: &Queue, lease: Duration) -> Result<Option<Chunk>, StoreError>;

    /// Every row was confirmed: these chunks are no more. Answers how many were still there; of the others the lease
    /// had passed, and somebody else has published them, too.
    async fn chunks_published(&self, chunks: &[ChunkId]) -> Result<u64, StoreError>;

    /// These chunks go back and wait.
    async fn release_chunks(&self, chunks: &[ChunkId]) -> Result<(), StoreError>;

    /// The broker refused some rows of the chunk: each counts, and after `max` is `FAILED` with a dead letter. The
    /// others of the chunk are published; the refused ones that have attempts left wait `delay` in it. Answers how many
    /// are dead letters.
    async fn rows_refused(
        &self,
        chunk: ChunkId,
        refused: Vec<(SendKey, String)>,
        max: u32,
        delay: Duration,
    ) -> Result<u64, StoreError>;

    /// Puts what was published to these queues and not received into chunks again, after the broker lost it: rows that
    /// were written at least `older_than` ago, of one page of the events that are not closed. At most `limit` of them.
    async fn republish(
        &self,
        queues: Vec<Queue>,
        older_than: Duration,
        from: RepublishCursor,
        limit: usize,
    ) -> Result<Republished, StoreError>;
}
