//! Claiming events, loading whom they concern, and committing what was decided, with nothing in between that waits.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::event::transition::{self, Step, Transition};
use campanile_domain::event::{BodyHash, Event, Failure};
use campanile_domain::fan_out::{Cursor, OutboxRow, Page};
use campanile_domain::id::{EntityRef, EventSeq};
use campanile_domain::people::recipient::{Candidate, Group};
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;
use campanile_domain::time::Timestamp;

use crate::{ChunkId, StoreError};

/// Which events to claim; by lane, then by age.
#[derive(Debug, Clone)]
pub enum Claim {
    New {
        limit: usize,
    },
    /// The same, of the first lane only: what is `HIGH`.
    Urgent {
        limit: usize,
    },
    /// One event with a large audience whose fan-out goes on step by step: the next in its lane behind `after`, in
    /// turns.
    Continuing {
        after: EventSeq,
    },
    /// The same, of the first lane only.
    UrgentContinuing {
        after: EventSeq,
    },
    /// These again, after a batch with them failed.
    ByIds(Vec<EventSeq>),
}

impl Claim {
    /// How many events are taken at most.
    pub(crate) fn limit(&self) -> usize {
        match self {
            Claim::New { limit } | Claim::Urgent { limit } => *limit,
            Claim::Continuing { .. } | Claim::UrgentContinuing { .. } => 1,
            Claim::ByIds(seqs) => seqs.len(),
        }
    }

    /// The least urgent lane of which events are taken.
    pub(crate) fn last_lane(&self) -> Lane {
        match self {
            Claim::Urgent { .. } | Claim::UrgentContinuing { .. } => Lane::High,
            Claim::New { .. } | Claim::Continuing { .. } | Claim::ByIds(_) => Lane::Low,
        }
    }
}

#[derive(Debug, Clone)]
pub struct ClaimedEvent {
    pub seq: EventSeq,
    pub event: Arc<Event>,
    pub cursor: Option<Cursor>,
    /// The id was processed before, perhaps years ago: nobody is told again.
    pub known: bool,
    /// Why it was cancelled, if it was.
    pub cancelled: Option<String>,
}

#[async_trait]
pub trait FanOutStore {
    /// `None` when nothing waits. A claim that is dropped leaves everything as it was. An event that can't even be read
    /// fails at once and alone, since left `PENDING` it would stand in the way of every claim; one that meets only such
    /// is empty.
    async fn claim_events(&self, claim: Claim) -> Result<Option<Box<dyn FanOutClaim>>, StoreError>;
}

#[async_trait]
pub trait FanOutClaim: Debug + Send + Sync {
    fn events(&self) -> &[ClaimedEvent];

    /// Events that could not be read, and are dead letters now.
    fn unreadable(&self) -> u64;

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
    pub seq: EventSeq,
    pub event: Arc<Event>,
    pub body_hash: BodyHash,
    /// The cursor that the claim read; the commit is refused when it is another by now.
    pub cursor_before: Option<Cursor>,
    pub decisions: Option<String>,
    pub entities: Vec<(EntityRef, bool)>,
    pub step: Step,
}

impl FanOutStep {
    /// What the step makes of its event.
    pub(crate) fn transition(&self) -> Transition<'_> {
        transition::after(&self.step, self.cursor_before.as_ref())
    }

    /// The text that the event's cursor must still have, or the commit is refused. `stored` is what the claim read.
    pub(crate) fn cursor_text_before(&self, stored: Option<&String>) -> Option<String> {
        self.cursor_before.as_ref().map(|before| before.stored_text(stored.map(String::as_str)))
    }
}

/// Why an event fails of which a column can't be used.
pub fn unreadable(error: &StoreError) -> Failure {
    let detail = match error {
        StoreError::Refused(detail) => detail.clone(),
        other => other.to_string(),
    };
    Failure::new("UNREADABLE", detail)
}

/// Up to 1000 rows of one queue and lane.
#[derive(Debug)]
pub struct NewChunk {
    pub queue: Queue,
    pub lane: Lane,
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
    pub queue: Queue,
    pub lane: Lane,
    pub rows: Vec<ChunkRow>,
}
