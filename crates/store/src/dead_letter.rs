//! What nobody tries again by itself: looking at it, and sending it on its way again.

use std::collections::HashMap;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, UserId, UserTypeName};
use campanile_domain::status::{EventStatus, SendStatus};
use campanile_domain::template::Text;
use campanile_domain::time::{Moment, Timestamp};
use serde::Serialize;

use crate::columns::Columns;
use crate::send_row::{self, AttemptRow};
use crate::{Shown, StoreError};

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowText {
    pub text: Text,
    /// The inbox text where it differs from the channel's.
    pub inbox: Option<Text>,
}

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

/// What a replay has to know of a letter.
#[derive(Debug)]
pub(crate) struct StoredDeadLetter {
    pub id: i64,
    pub stage: String,
    pub event_id: Option<String>,
    pub recipient: Option<(String, String)>,
    pub channel: Option<String>,
}

/// What a letter speaks of.
#[derive(Debug)]
pub(crate) enum ReplayTarget<'a> {
    /// An event that could not be fanned out.
    Event(&'a str),
    /// An outbox row that was not published or not received.
    Row(RowKey<'a>),
    /// An outbox row that had no text.
    Unrendered(RowKey<'a>),
    /// A send, by its outbox row.
    Send(RowKey<'a>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RowKey<'a> {
    pub event_id: &'a str,
    pub recipient_type: &'a str,
    pub recipient_id: &'a str,
    pub channel: &'a str,
}

/// Why a letter is left alone, in words for the operator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skipped(pub String);

pub(crate) const NO_LONGER_STORED: &str = "its event, row or send is no longer stored";

impl StoredDeadLetter {
    pub fn target(&self) -> Result<ReplayTarget<'_>, Skipped> {
        let skipped = |why: &str| Err(Skipped(why.to_owned()));
        let Some(event_id) = self.event_id.as_deref() else {
            return skipped("it names no known event");
        };
        let row = self.recipient.as_ref().zip(self.channel.as_deref()).map(
            |((recipient_type, recipient_id), channel)| RowKey {
                event_id,
                recipient_type,
                recipient_id,
                channel,
            },
        );
        match (self.stage.as_str(), row) {
            ("fan_out", _) if self.recipient.is_none() => Ok(ReplayTarget::Event(event_id)),
            ("fan_out", Some(row)) => Ok(ReplayTarget::Unrendered(row)),
            ("publish" | "receive", Some(row)) => Ok(ReplayTarget::Row(row)),
            ("send", Some(row)) => Ok(ReplayTarget::Send(row)),
            ("fan_out" | "publish" | "receive" | "send", None) => {
                skipped("it names no recipient and channel")
            }
            (stage, _) => Err(Skipped(format!("unknown stage {stage}"))),
        }
    }
}

/// What a row says from now on, where that could be written.
pub(crate) fn rerendered_text<'a>(
    dead_letter: &StoredDeadLetter,
    rerendered: &'a RerenderedTexts,
) -> Result<&'a RowText, Skipped> {
    match rerendered.get(&dead_letter.id) {
        Some(Ok(text)) => Ok(text),
        Some(Err(why)) => Err(Skipped(format!("its text still can't be rendered: {why}"))),
        None => Err(Skipped("its text was not rendered again".to_owned())),
    }
}

/// Why an event is not brought back.
pub(crate) fn event_skipped(status: Option<EventStatus>) -> Skipped {
    let Some(status) = status else { return Skipped(NO_LONGER_STORED.to_owned()) };
    Skipped(match status {
        EventStatus::Pending => "its event is already being processed".to_owned(),
        EventStatus::Published | EventStatus::Processed | EventStatus::Failed | EventStatus::Cancelled => {
            format!("its event is {}; an event that was already decided is not replayed", status.as_str())
        }
    })
}

/// Why a row is not published again: the status that is stored of it, and the one of its send.
pub(crate) fn row_skipped(stored: Option<&str>, send: Option<SendStatus>) -> Skipped {
    Skipped(match (stored, send) {
        (_, Some(_)) => "its message was already received".to_owned(),
        (Some(status), None) => format!("its row is {status}"),
        (None, None) => "its row is already being published".to_owned(),
    })
}

/// Why a send is not made again.
pub(crate) fn send_skipped(status: Option<SendStatus>) -> Skipped {
    Skipped(match status {
        Some(status) => format!("its send is {}", status.as_str()),
        None => NO_LONGER_STORED.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead_letter(stage: &str, recipient: bool, channel: bool) -> StoredDeadLetter {
        StoredDeadLetter {
            id: 1,
            stage: stage.to_owned(),
            event_id: Some("a".to_owned()),
            recipient: recipient.then(|| ("CUSTOMER".to_owned(), "42".to_owned())),
            channel: channel.then(|| "EMAIL".to_owned()),
        }
    }

    #[test]
    fn an_event_begins_again_only_by_a_dead_letter_of_nobody_in_particular() {
        assert!(matches!(dead_letter("fan_out", false, false).target(), Ok(ReplayTarget::Event("a"))));
        assert!(matches!(dead_letter("fan_out", true, true).target(), Ok(ReplayTarget::Unrendered(_))));
        assert!(dead_letter("fan_out", true, false).target().is_err());
    }

    #[test]
    fn a_row_is_found_only_by_its_whole_key() {
        for stage in ["publish", "receive"] {
            assert!(matches!(dead_letter(stage, true, true).target(), Ok(ReplayTarget::Row(_))));
        }
        assert!(matches!(dead_letter("send", true, true).target(), Ok(ReplayTarget::Send(_))));
        for stage in ["publish", "receive", "send"] {
            assert!(dead_letter(stage, true, false).target().is_err());
            assert!(dead_letter(stage, false, true).target().is_err());
        }
    }
}
