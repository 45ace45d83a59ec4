//! Claiming events, loading whom they concern, and committing what was decided, with nothing in between that waits.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::event::{BodyHash, Event, Failure};
use campanile_domain::fan_out::{Cursor, OutboxRow, Page, Summary};
use campanile_domain::id::{EntityRef, EventSeq};
use campanile_domain::people::recipient::{Candidate, Group};
use campanile_domain::priority::Lane;
use campanile_domain::status::{EventStatus, ProcessedStatus};
use campanile_domain::time::Timestamp;
use serde_json::json;

use crate::{ChunkId, DeadLetter, StoreError};

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

impl ClaimedEvent {
    /// Whether an event was decided before, by what is remembered of its id.
    pub(crate) fn is_known(remembered: Option<ProcessedStatus>, cursor: Option<&Cursor>) -> bool {
        match remembered {
            Some(ProcessedStatus::Success) => true,
            Some(ProcessedStatus::Processing) => cursor.is_none(),
            Some(ProcessedStatus::Failed) | None => false,
        }
    }
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

/// What a step makes of its event.
#[derive(Debug)]
pub(crate) struct NextState {
    pub status: EventStatus,
    pub cursor: Option<String>,
    pub error: Option<String>,
}

impl FanOutStep {
    pub(crate) fn next(&self) -> NextState {
        let ends = |status, error| NextState { status, cursor: None, error };
        match &self.step {
            Step::Finished(summary) if summary.sends == 0 => ends(EventStatus::Processed, None),
            Step::Finished(_) => ends(EventStatus::Published, None),
            Step::Continues(cursor) => NextState {
                status: EventStatus::Pending,
                cursor: Some(json!(cursor).to_string()),
                error: None,
            },
            Step::Failed(failure) => ends(EventStatus::Failed, Some(failure.to_string())),
            Step::Stopped { failure, .. } => ends(EventStatus::Published, Some(failure.to_string())),
            Step::Known => ends(EventStatus::Processed, None),
            Step::Cancelled(reason) => {
                // What was written already goes its way, and then closes the event.
                let begun = self.begun().is_some();
                let status = if begun { EventStatus::Published } else { EventStatus::Cancelled };
                ends(status, Some(format!("CANCELLED: {reason}")))
            }
        }
    }

    /// What is remembered of the event; nothing new of one that is known.
    pub(crate) fn processed_record(&self) -> Option<(ProcessedStatus, Cow<'_, Summary>)> {
        let nobody = || Cow::Owned(Summary::default());
        match &self.step {
            Step::Finished(summary) | Step::Stopped { summary, .. } => {
                Some((ProcessedStatus::Success, Cow::Borrowed(summary)))
            }
            Step::Continues(cursor) => Some((ProcessedStatus::Processing, Cow::Borrowed(&cursor.summary))),
            Step::Failed(_) => Some((ProcessedStatus::Failed, nobody())),
            Step::Cancelled(_) => {
                let summary = self.begun().map_or_else(nobody, |cursor| Cow::Borrowed(&cursor.summary));
                Some((ProcessedStatus::Success, summary))
            }
            Step::Known => None,
        }
    }

    /// The text that the event's cursor must still have: the one that the claim read, if the step goes out from it.
    /// Another release may write the same cursor with other words.
    pub(crate) fn fence(&self, stored: Option<&String>) -> Option<String> {
        let before = self.cursor_before.as_ref()?;
        let same =
            |text: &&String| serde_json::from_str::<Cursor>(text).is_ok_and(|cursor| cursor == *before);
        Some(stored.filter(same).cloned().unwrap_or_else(|| json!(before).to_string()))
    }

    /// For whoever looks why the event ended.
    pub(crate) fn dead_letter(&self) -> Option<DeadLetter> {
        match &self.step {
            Step::Failed(failure) | Step::Stopped { failure, .. } => {
                Some(DeadLetter::of_event(self.event.event_id.as_str(), failure))
            }
            Step::Finished(_) | Step::Continues(_) | Step::Known | Step::Cancelled(_) => None,
        }
    }

    /// How far an event has come whose recipients were told in part.
    fn begun(&self) -> Option<&Cursor> {
        self.cursor_before.as_ref().filter(|cursor| **cursor != Cursor::default())
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
    pub queue: String,
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
    pub queue: String,
    pub lane: Lane,
    pub rows: Vec<ChunkRow>,
}
