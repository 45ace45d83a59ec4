//! Dead letters: events, rows and sends that are not retried automatically. Lists and replays them.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::access::audit::{Actor, AuditAction, AuditEntry};
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, SendKey, UserId, UserTypeName};
use campanile_domain::priority::{Lane, Priority};
use campanile_domain::queue::Queue;
use campanile_domain::replay::{self, RowState, RowText};
use campanile_domain::time::{Moment, Timestamp};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::columns::Columns;
use crate::send_row::{self, AttemptRow};
use crate::{Shown, StoreError, decode};

/// Selects dead letters. Each field that is set must match. At most `limit` are returned, beginning after the id
/// `after`.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// One dead letter by its id.
    pub id: Option<i64>,
    pub event_id: Option<String>,
    pub stage: Option<String>,
    pub channel: Option<String>,
    pub provider: Option<String>,
    /// The code of the failure, such as `NO_RECIPIENTS`.
    pub reason: Option<String>,
    /// A part of the error's text.
    pub error: Option<String>,
    /// Whether dead letters that were replayed already are included.
    pub replayed: bool,
    /// Only dead letters written up to this time. A walk then does not meet failures that occur while it runs.
    pub until: Option<Timestamp>,
    pub after: i64,
    pub limit: usize,
}

impl DeadLetterFilter {
    /// The range of ids to search: after the first, up to and including the second.
    pub(crate) fn range(&self) -> (i64, i64) {
        match self.id {
            Some(id) => (self.after.max(id.saturating_sub(1)), id),
            None => (self.after, i64::MAX),
        }
    }
}

/// A dead letter, as a trace shows it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DeadLetterRow {
    pub id: i64,
    /// `fan_out`, `publish`, `receive` or `send`.
    #[schema(example = "fan_out")]
    pub stage: String,
    pub event_id: Option<EventId>,
    pub recipient_type: Option<UserTypeName>,
    pub recipient_id: Option<UserId>,
    #[schema(value_type = Option<Channel>)]
    pub channel: Option<Shown<Channel>>,
    #[schema(example = "smtp")]
    pub provider: Option<String>,
    /// The code of the failure.
    #[schema(example = "NO_RECIPIENTS")]
    pub reason: String,
    /// What happened.
    #[schema(example = "nobody is in the audience")]
    pub error: String,
    #[schema(value_type = Moment)]
    pub created_at: Shown<Moment>,
    #[schema(value_type = Option<Moment>)]
    pub replayed_at: Option<Shown<Moment>>,
}

/// A dead letter in a list.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ListedDeadLetter {
    #[serde(flatten)]
    pub row: DeadLetterRow,
    /// The broker's message, if no row or send is known.
    pub message: Option<String>,
    /// The attempts of the dead letter's send.
    pub attempts: Vec<AttemptRow>,
}

/// The result of a replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The number of dead letters whose row, send or event is processed again.
    pub replayed: u64,
    /// Dead letters that can't be replayed, by id, with the reason.
    pub skipped: Vec<(i64, String)>,
    /// The id of the last dead letter that was examined, if more may follow.
    pub next: Option<i64>,
}

/// Texts that could not be rendered when their events were decided, by the id of the dead letter. Each is the new text,
/// or the reason why it still can't be rendered.
pub type RerenderedTexts = HashMap<i64, Result<RowText, String>>;

#[async_trait]
pub trait DeadLetterStore {
    /// Lists dead letters from the oldest to the newest.
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<ListedDeadLetter>, StoreError>;

    /// Moves failed events, rows and sends back to the stage where they failed, in one transaction. A `FAILED` event
    /// becomes `PENDING`. A row that was refused or could not be received waits in a chunk. A row without a text also
    /// waits in a chunk, if `rerendered` has its text. A send is due at once, with all its attempts left. Keys do not
    /// change, so recipients who were notified are not notified again. A dead letter that was replayed before is left
    /// unchanged. Each replay is recorded as an action of the actor.
    async fn replay(
        &self,
        filter: DeadLetterFilter,
        rerendered: RerenderedTexts,
        actor: &Actor,
    ) -> Result<Replayed, StoreError>;
}

/// The record of a replay.
pub(crate) fn replayed(dead_letter: &replay::DeadLetter) -> AuditEntry {
    AuditEntry {
        action: AuditAction::Replay,
        object_type: "dead_letter",
        object_id: dead_letter.id.to_string(),
        before: None,
        after: Some(json!({ "event_id": dead_letter.event_id, "stage": dead_letter.stage })),
    }
}

pub(crate) fn dead_letter_row(row: &impl Columns) -> Result<DeadLetterRow, StoreError> {
    Ok(DeadLetterRow {
        id: row.integer("id")?,
        stage: row.lossy_text("stage")?,
        event_id: row.maybe_lossy("event_id")?.map(EventId::stored),
        recipient_type: row.maybe_lossy("recipient_type")?.map(UserTypeName::stored),
        recipient_id: row.maybe_lossy("recipient_id")?.map(UserId::stored),
        channel: row.maybe_shown("channel")?,
        provider: row.maybe_lossy_text("provider")?,
        reason: row.lossy_text("reason")?,
        error: row.lossy_text("error")?,
        created_at: row.shown("created_at")?,
        replayed_at: row.maybe_shown("replayed_at")?,
    })
}

pub(crate) fn listed_dead_letter(row: &impl Columns) -> Result<ListedDeadLetter, StoreError> {
    Ok(ListedDeadLetter {
        row: dead_letter_row(row)?,
        message: row.maybe_lossy_text("message")?,
        attempts: send_row::objects(row, "attempts")?,
    })
}

/// The columns of a dead letter that its replay depends on.
pub(crate) fn replayable(row: &impl Columns) -> Result<replay::DeadLetter, StoreError> {
    Ok(replay::DeadLetter {
        id: row.integer("id")?,
        stage: row.text("stage")?,
        event_id: row.maybe_text("event_id")?,
        recipient: row.maybe_text("recipient_type")?.zip(row.maybe_text("recipient_id")?),
        channel: row.maybe_text("channel")?,
    })
}

/// The outbox row that a dead letter names, as it is now.
#[derive(Debug)]
pub(crate) struct FailedRow {
    pub key: SendKey,
    pub queue: Queue,
    pub lane: Lane,
    pub state: RowState,
}

pub(crate) fn failed_row(row: &impl Columns) -> Result<FailedRow, StoreError> {
    Ok(FailedRow {
        key: decode::key_of(row)?,
        queue: Queue::named(row.str("queue")?),
        lane: row.parsed::<Priority>("priority")?.lane(),
        state: RowState { status: row.maybe_parsed("status")?, send: row.maybe_parsed("send")? },
    })
}
