//! Claims events, and commits what was decided about them. Between claim and commit, the code waits only for the
//! database. `campanile_domain::event::transition` decides the next state of an event after a step.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::event::transition::{self, Step, Transition};
use campanile_domain::event::{BodyHash, Event, Failure};
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::{EntityRef, EventSeq};
use campanile_domain::priority::Lane;
use campanile_domain::queue::Queue;

use crate::{AudienceReader, ChunkId, StoreError};

/// Which events to claim. Events are claimed by lane, then by age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    New {
        limit: usize,
    },
    /// New events of the lane `High` only.
    Urgent {
        limit: usize,
    },
    /// One large event whose fan-out continues: the next one in its lane after `after`. So large events take turns.
    Continuing {
        after: EventSeq,
    },
    /// Like `Continuing`, but only events of the lane `High`.
    UrgentContinuing {
        after: EventSeq,
    },
    /// These events again, after the batch that contained them failed.
    ByIds(Vec<EventSeq>),
}

impl Claim {
    /// The maximum number of events in the claim.
    pub(crate) fn limit(&self) -> usize {
        match self {
            Claim::New { limit } | Claim::Urgent { limit } => *limit,
            Claim::Continuing { .. } | Claim::UrgentContinuing { .. } => 1,
            Claim::ByIds(seqs) => seqs.len(),
        }
    }

    /// The last lane from which events are claimed.
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
    /// The id was processed before, perhaps years ago, so no recipient is notified again.
    pub known: bool,
    /// The reason, if the event was cancelled.
    pub cancelled: Option<String>,
}

#[async_trait]
pub trait FanOutStore {
    /// Claims events; `None` if no event waits. Dropping a claim changes nothing. An event that can't be read becomes
    /// `FAILED` at once, because it would otherwise block every later claim. A claim that found only such events is
    /// empty.
    async fn claim_events(&self, claim: Claim) -> Result<Option<Box<dyn FanOutClaim>>, StoreError>;
}

/// Claimed events. Their audience is read in the claim, and the decisions are committed with it.
#[async_trait]
pub trait FanOutClaim: AudienceReader {
    fn events(&self) -> &[ClaimedEvent];

    /// The number of events that could not be read. Each now has a dead letter.
    fn unreadable(&self) -> u64;

    /// Writes everything in one transaction. Returns the chunks that are leased to this instance, for the hand-over to
    /// publish.
    async fn commit(self: Box<Self>, commit: FanOutCommit) -> Result<Vec<Chunk>, StoreError>;
}

#[derive(Debug)]
pub struct FanOutCommit {
    pub instance: String,
    pub steps: Vec<FanOutStep>,
    pub chunks: Vec<NewChunk>,
    /// Rows that can't be sent, each with its failure. They are in no chunk.
    pub failed_rows: Vec<OutboxRow>,
    pub lease: Duration,
}

/// What one commit writes for one event.
#[derive(Debug)]
pub struct FanOutStep {
    pub seq: EventSeq,
    pub event: Arc<Event>,
    pub body_hash: BodyHash,
    /// The cursor that the claim read. The commit is refused if the stored cursor has changed since.
    pub cursor_before: Option<Cursor>,
    pub decisions: Option<String>,
    pub entities: Vec<(EntityRef, bool)>,
    pub step: Step,
}

impl FanOutStep {
    /// The transition of the event that this step causes.
    pub(crate) fn transition(&self) -> Transition<'_> {
        transition::after(&self.step, self.cursor_before.as_ref())
    }

    /// The text that the event's cursor must still have; otherwise the commit is refused. `stored` is the text that the
    /// claim read.
    pub(crate) fn cursor_text_before(&self, stored: Option<&String>) -> Option<String> {
        self.cursor_before.as_ref().map(|before| before.stored_text(stored.map(String::as_str)))
    }
}

/// The failure of an event with a column that can't be used.
pub fn unreadable(error: &StoreError) -> Failure {
    let detail = match error {
        StoreError::Refused(detail) => detail.to_string(),
        other => other.to_string(),
    };
    Failure::new("UNREADABLE", detail)
}

/// At most `MAX_CHUNK_ROWS` rows of one queue and lane.
#[derive(Debug)]
pub struct NewChunk {
    pub queue: Queue,
    pub lane: Lane,
    pub rows: Vec<ChunkRow>,
    /// Whether the chunk is leased to this instance, which publishes it at once. Otherwise it waits for any instance.
    pub leased: bool,
}

#[derive(Debug, Clone)]
pub struct ChunkRow {
    pub row: OutboxRow,
    pub event: Arc<Event>,
}

/// A chunk under a lease of this instance.
#[derive(Debug)]
pub struct Chunk {
    pub id: ChunkId,
    pub queue: Queue,
    pub lane: Lane,
    pub rows: Vec<ChunkRow>,
}
