//! The second outbox on its way to the broker: chunks of rows that wait to be published.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::id::SendKey;

use crate::{Chunk, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkId(pub i64);

#[async_trait]
pub trait OutboxStore {
    /// The next chunk of the queue that nobody holds, leased; by lane, then by age.
    async fn claim_chunk(&self, queue: &str, lease: Duration) -> Result<Option<Chunk>, StoreError>;

    /// Every row was confirmed: these chunks are no more. Answers how many were still there; of the others the lease had passed, and
    /// somebody else has published them, too.
    async fn chunks_published(&self, chunks: &[ChunkId]) -> Result<u64, StoreError>;

    /// The chunk goes back and waits.
    async fn release_chunk(&self, chunk: ChunkId) -> Result<(), StoreError>;

    /// The broker refused some rows of the chunk: each counts, and after `max` is `FAILED` with a dead letter. The others of
    /// the chunk are published; the refused ones that have attempts left wait `delay` in it. Answers how many are dead letters.
    async fn rows_refused(
        &self,
        chunk: ChunkId,
        refused: Vec<(SendKey, String)>,
        max: u32,
        delay: Duration,
    ) -> Result<u64, StoreError>;

    /// Puts what was published to these queues and not received into chunks again, after the broker lost it: rows that were
    /// written at least `older_than` ago. At most `limit` of them; answers how many.
    async fn republish(
        &self,
        queues: Vec<String>,
        older_than: Duration,
        limit: usize,
    ) -> Result<u64, StoreError>;
}
