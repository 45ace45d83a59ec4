//! Chunks: outbox rows that are published together. A chunk is claimed under a lease, published, and deleted; rows that
//! a broker lost are put into chunks again.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, EventSeq, SendKey, UserRef};
use campanile_domain::queue::Queue;

use crate::{Chunk, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkId(pub i64);

/// Where a search for lost rows continues: after this event, or within it. The default is the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepublishCursor {
    pub seq: EventSeq,
    /// The last row of that event that was found. `None` if the whole event has been searched.
    pub row: Option<(UserRef, Channel)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Republished {
    pub rows: u64,
    /// Where the next page begins. `None` after the last page.
    pub next: Option<RepublishCursor>,
}

impl RepublishCursor {
    /// The search reads events after this one.
    pub(crate) fn after(&self) -> EventSeq {
        if self.row.is_some() { EventSeq(self.seq.0 - 1) } else { self.seq }
    }
}

impl Republished {
    /// The result of one page of events. `last` is the last row that was found.
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

/// The number of open events that are searched for lost rows at a time.
pub(crate) const REPUBLISH_PAGE_EVENTS: usize = 500;

#[async_trait]
pub trait OutboxStore {
    /// Claims the next free chunk of a queue, by lane, then by age.
    async fn claim_chunk(&self, queue: &Queue, lease: Duration) -> Result<Option<Chunk>, StoreError>;

    /// Deletes chunks whose rows were all confirmed, and returns how many still existed. The lease of a missing chunk
    /// had expired, and another instance has published the chunk as well.
    async fn chunks_published(&self, chunks: &[ChunkId]) -> Result<u64, StoreError>;

    /// Releases chunks, so that any instance may claim them.
    async fn release_chunks(&self, chunks: &[ChunkId]) -> Result<(), StoreError>;

    /// Counts a refusal of each of these rows, and returns how many became dead letters. A row is `FAILED` after `max`
    /// refusals. Other refused rows stay in the chunk and wait for `delay`. The remaining rows of the chunk count as
    /// published.
    async fn rows_refused(
        &self,
        chunk: ChunkId,
        refused: Vec<(SendKey, String)>,
        max: u32,
        delay: Duration,
    ) -> Result<u64, StoreError>;

    /// Puts rows that the broker lost into chunks again, if they were published to these queues. Searches one page of
    /// open events for rows that were written at least `older_than` ago and not received. Finds at most `limit` rows.
    async fn republish(
        &self,
        queues: Vec<Queue>,
        older_than: Duration,
        from: RepublishCursor,
        limit: usize,
    ) -> Result<Republished, StoreError>;
}
