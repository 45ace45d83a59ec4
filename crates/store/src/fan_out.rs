//! Claiming events, loading whom they concern, and committing what was decided, with nothing in between that waits.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::event::{BodyHash, Event, Failure};
use campanile_domain::fan_out::{Cursor, OutboxRow, Page, Summary};
use campanile_domain::id::EntityRef;
use campanile_domain::recipient::{Candidate, Group};
use campanile_domain::time::Timestamp;

use crate::{ChunkId, StoreError};

/// Which events to claim; by lane, then by age.
#[derive(Debug, Clone)]
pub enum Claim {
    Fresh {
        limit: usize,
    },
    /// One event with a large audience whose fan-out goes on step by step: the next in its lane behind `after`, in turns.
    Unfinished {
        after: i64,
    },
    /// These again, after a batch with them failed.
    These(Vec<i64>),
}

#[derive(Debug, Clone)]
pub struct ClaimedEvent {
    pub seq: i64,
    pub event: Arc<Event>,
    pub cursor: Option<Cursor>,
    /// The id was processed before, perhaps years ago: nobody is told again.
    pub known: bool,
    /// Why it was cancelled, if it was.
    pub cancelled: Option<String>,
}

#[async_trait]
pub trait FanOutStore {
    /// `None` when nothing waits. A claim that is dropped leaves everything as it was.
    async fn claim_events(&self, claim: Claim) -> Result<Option<Box<dyn FanOutClaim>>, StoreError>;
}

#[async_trait]
pub trait FanOutClaim: Debug + Send + Sync {
    fn events(&self) -> &[ClaimedEvent];

    /// The database's time of the claim, by which rules decide.
    fn now(&self) -> Timestamp;

    /// One answer per page, in the order (entity, rank, user id).
    async fn candidates(&mut self, pages: Vec<Page>) -> Result<Vec<Vec<Candidate>>, StoreError>;

    async fn groups(&mut self, entities: Vec<EntityRef>) -> Result<HashMap<EntityRef, Group>, StoreError>;

    /// All of it in one transaction. Answers the chunks that were born leased, to be handed to publish.
    async fn commit(self: Box<Self>, commit: FanOutCommit) -> Result<Vec<Chunk>, StoreError>;
}

#[derive(Debug)]
pub struct FanOutCommit {
    pub instance: String,
    pub steps: Vec<FanOutStep>,
    pub chunks: Vec<NewChunk>,
    /// Rows that can't be sent and say why; they are in no chunk.
    pub failed_rows: Vec<OutboxRow>,
    pub lease: Duration,
}

/// What becomes of one event in this commit.
#[derive(Debug)]
pub struct FanOutStep {
    pub seq: i64,
    pub event: Arc<Event>,
    pub body_hash: BodyHash,
    /// The cursor that the claim read; the commit is refused when it is another by now.
    pub cursor_before: Option<Cursor>,
    pub decisions: Option<String>,
    pub entities: Vec<(EntityRef, bool)>,
    pub step: Step,
}

#[derive(Debug)]
pub enum Step {
    Finished(Summary),
    Continues(Cursor),
    Failed(Failure),
    /// It can't go on, for example because its rule was deleted, and some were told already: what was written stays.
    Stopped {
        summary: Summary,
        failure: Failure,
    },
    /// Known already: `PROCESSED`, and nobody is told.
    Known,
    /// Why. What a fan-out that has begun wrote already stays, and the event is `PUBLISHED`; any other is `CANCELLED`.
    Cancelled(String),
}

/// Up to 1000 rows of one queue and lane.
#[derive(Debug)]
pub struct NewChunk {
    pub queue: String,
    pub lane: i64,
    pub rows: Vec<ChunkRow>,
    /// Born leased to this instance, which publishes it at once; otherwise it waits for whoever claims it.
    pub leased: bool,
}

#[derive(Debug, Clone)]
pub struct ChunkRow {
    pub row: OutboxRow,
    pub event: Arc<Event>,
}

/// A chunk that this instance holds a lease of.
#[derive(Debug)]
pub struct Chunk {
    pub id: ChunkId,
    pub queue: String,
    pub lane: i64,
    pub rows: Vec<ChunkRow>,
}
