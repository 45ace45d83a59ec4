//! Dead letters: events, rows and sends that are not retried automatically. Lists and replays them.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, SendKey, UserId, UserTypeName};
use campanile_domain::priority::{Lane, Priority};
use campanile_domain::queue::Queue;
use campanile_domain::replay::{self, RowState, RowText};
use campanile_domain::time::{Moment, Timestamp};
use serde::Serialize;

use crate::columns::Columns;
use crate::send_row::{self, AttemptRow};
use crate::{Shown, StoreError, decode};

/// Which dead letters: those where everything that is given is so, behind `after`; at most `limit`.
#[derive(Debug, Clone, Default)]
pub struct DeadLetterFilter {
    /// One letter by its id.
    pub id: Option<i64>,
    pub event_id: Option<String>,
    pub stage: Option<String>,
    pub channel: Option<String>,
    pub provider: Option<String>,
    /// The code of what went wrong, such as `NO_RECIPIENTS`.
    pub reason: Option<String>,
    /// A part of the error's text.
    pub error: Option<String>,
    /// Whether letters that were replayed already are among them.
    pub replayed: bool,
    /// Letters that were written until then: a walk does not meet what fails anew behind it.
    pub until: Option<Timestamp>,
    pub after: i64,
    pub limit: usize,
}

impl DeadLetterFilter {
    /// The ids between which to look: behind the first, up to the second.
    pub(crate) fn range(&self) -> (i64, i64) {
        match self.id {
            Some(id) => (self.after.max(id.saturating_sub(1)), id),
            None => (self.after, i64::MAX),
        }
    }
}

/// A dead letter, as a trace shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeadLetterRow {
    pub id: i64,
    pub stage: String,
    pub event_id: Option<EventId>,
    pub recipient_type: Option<UserTypeName>,
    pub recipient_id: Option<UserId>,
    pub channel: Option<Shown<Channel>>,
    pub provider: Option<String>,
    pub reason: String,
    pub error: String,
    pub created_at: Shown<Moment>,
    pub replayed_at: Option<Shown<Moment>>,
}

/// A dead letter of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedDeadLetter {
    #[serde(flatten)]
    pub row: DeadLetterRow,
    /// The broker's message, where that is all there is.
    pub message: Option<String>,
    /// Those of its send.
    pub attempts: Vec<AttemptRow>,
}

/// What a replay came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Letters whose row, send or event is on its way again.
    pub replayed: u64,
    /// Letters that can't be replayed, by their id, and why.
    pub skipped: Vec<(i64, String)>,
    /// The last letter that was looked at, if there may be more behind it.
    pub next: Option<i64>,
}

/// What a row says that could not be written when its event was decided, or why it still can't be; by the id of its
/// letter.
pub type RerenderedTexts = HashMap<i64, Result<RowText, String>>;

#[async_trait]
pub trait DeadLetterStore {
    /// By age.
    async fn list_dead_letters(&self, filter: DeadLetterFilter) -> Result<Vec<ListedDeadLetter>, StoreError>;

    /// Puts what these letters speak of back to where it failed, all in one transaction: a `FAILED` event is `PENDING`,
    /// a row that was refused or could not be received waits in a chunk, a send is due now with all its attempts ahead.
    /// A row that had no text waits in a chunk, too, if it is rewritten here. Keys stay, so whoever was told is not
    /// told again. A letter that was replayed before is left alone.
    async fn replay(
        &self,
        filter: DeadLetterFilter,
        rerendered: RerenderedTexts,
    ) -> Result<Replayed, StoreError>;
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

/// A dead letter, as far as its replay depends on it.
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
