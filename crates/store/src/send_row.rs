//! Sends as lists and traces show them, with their attempts.

use campanile_domain::channel::Channel;
use campanile_domain::id::{EventId, NotificationId, SendKey, UserId, UserRef, UserTypeName};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Moment;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::columns::{Columns, bad};
use crate::stage::{SendStages, StageStamp};
use crate::{Shown, StoreError, trace};

/// A send, without its recipient.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SendRow {
    #[schema(value_type = SendKey)]
    pub id: Shown<SendKey>,
    #[schema(value_type = NotificationId)]
    pub notification_id: Shown<NotificationId>,
    #[schema(value_type = Channel)]
    pub channel: Shown<Channel>,
    /// `***` without the scope `payload`. Devices are separated by blanks.
    #[schema(example = "anna@example.com")]
    pub recipient_address: String,
    #[schema(value_type = SendStatus)]
    pub status: Shown<SendStatus>,
    #[schema(value_type = u32)]
    pub attempt_count: Shown<u32>,
    #[schema(value_type = Option<Moment>)]
    pub next_attempt_at: Option<Shown<Moment>>,
    #[schema(value_type = Option<i64>)]
    pub lease: Option<Shown<i64>>,
    #[schema(value_type = Option<Moment>)]
    pub lease_until: Option<Shown<Moment>>,
    #[schema(example = "smtp")]
    pub provider: Option<String>,
    /// The provider's id of the message.
    #[schema(example = "250 queued as 4F2A")]
    pub external_id: Option<String>,
    /// The provider's status of the message.
    #[schema(example = "delivered")]
    pub receipt: Option<String>,
    #[schema(value_type = Option<Moment>)]
    pub receipt_at: Option<Shown<Moment>>,
    /// Why the last attempt failed.
    #[schema(example = "450 4.2.1 mailbox busy")]
    pub last_error: Option<String>,
    /// When the message was received.
    #[schema(value_type = Moment)]
    pub created_at: Shown<Moment>,
    #[schema(value_type = Option<Moment>)]
    pub sent_at: Option<Shown<Moment>>,
    #[schema(value_type = Option<Moment>)]
    pub deferred_since: Option<Shown<Moment>>,
    #[schema(value_type = u32)]
    pub deferrals: Shown<u32>,
}

/// A send in a list. Its outbox row, which names the event and the user, may be deleted already.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ListedSend {
    #[serde(flatten)]
    pub row: SendRow,
    pub event_id: Option<EventId>,
    pub user_type: Option<UserTypeName>,
    pub user_id: Option<UserId>,
    #[schema(value_type = Option<Moment>)]
    pub in_doubt_since: Option<Shown<Moment>>,
}

/// A send in a trace.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TracedSend {
    #[serde(flatten)]
    pub row: SendRow,
    #[serde(flatten)]
    pub user: UserRef,
    pub attempts: Vec<TracedAttempt>,
    /// The outcome of each address, if there are several, such as push tokens.
    pub addresses: Vec<SendAddressRow>,
    pub stages: SendStages,
}

/// An attempt, or an operator's decision about a send in doubt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttemptRow {
    #[schema(value_type = Moment)]
    pub at: Shown<Moment>,
    #[schema(example = "smtp")]
    pub provider: Option<String>,
    /// The status that followed, or an operator's decision.
    #[schema(example = "DUE")]
    pub outcome: String,
    #[schema(example = "450 4.2.1 mailbox busy")]
    pub error: Option<String>,
    #[schema(value_type = u64)]
    pub duration_ms: Shown<u64>,
}

/// An attempt, and the instance that made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TracedAttempt {
    #[serde(flatten)]
    pub row: AttemptRow,
    pub instance: Option<String>,
}

/// The outcome of one address of a send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SendAddressRow {
    #[schema(example = "anna@example.com")]
    pub address: String,
    #[schema(example = "SENT")]
    pub outcome: String,
    pub external_id: Option<String>,
    pub error: Option<String>,
    #[schema(value_type = Moment)]
    pub at: Shown<Moment>,
}

fn send_row(row: &impl Columns) -> Result<SendRow, StoreError> {
    Ok(SendRow {
        id: row.shown("id")?,
        notification_id: row.shown("notification_id")?,
        channel: row.shown("channel")?,
        recipient_address: row.lossy_text("recipient_address")?,
        status: row.shown("status")?,
        attempt_count: row.shown("attempt_count")?,
        next_attempt_at: row.maybe_shown("next_attempt_at")?,
        lease: row.maybe_shown("lease")?,
        lease_until: row.maybe_shown("lease_until")?,
        provider: row.maybe_lossy_text("provider")?,
        external_id: row.maybe_lossy_text("external_id")?,
        receipt: row.maybe_lossy_text("receipt")?,
        receipt_at: row.maybe_shown("receipt_at")?,
        last_error: row.maybe_lossy_text("last_error")?,
        created_at: row.shown("created_at")?,
        sent_at: row.maybe_shown("sent_at")?,
        deferred_since: row.maybe_shown("deferred_since")?,
        deferrals: row.shown("deferrals")?,
    })
}

/// A send in a list. `None` if there is no send yet, because its message has not been received.
pub(crate) fn listed_send(row: &impl Columns) -> Result<Option<ListedSend>, StoreError> {
    if row.maybe_lossy("status")?.is_none() {
        return Ok(None);
    }
    Ok(Some(ListedSend {
        row: send_row(row)?,
        event_id: row.maybe_lossy("event_id")?.map(EventId::stored),
        user_type: row.maybe_lossy("user_type")?.map(UserTypeName::stored),
        user_id: row.maybe_lossy("user_id")?.map(UserId::stored),
        in_doubt_since: row.maybe_shown("in_doubt_since")?,
    }))
}

pub(crate) fn traced_send(row: &impl Columns) -> Result<TracedSend, StoreError> {
    let (send, attempts) = (send_row(row)?, objects(row, "attempts")?);
    Ok(TracedSend {
        stages: stages(row, &send, &attempts)?,
        row: send,
        user: trace::user_of(row)?,
        attempts,
        addresses: objects(row, "addresses")?,
    })
}

/// Objects that the statement built from other rows.
pub(crate) fn objects<T: DeserializeOwned>(row: &impl Columns, column: &str) -> Result<Vec<T>, StoreError> {
    serde_json::from_value(row.json(column)?).map_err(|error| bad(column, error))
}

/// The stages of a send. A send is settled when it was sent, or at its last attempt.
fn stages(row: &impl Columns, send: &SendRow, attempts: &[TracedAttempt]) -> Result<SendStages, StoreError> {
    let by = |column| row.maybe_lossy_text(column);
    let settled_at = send.sent_at.clone().or_else(|| attempts.last().map(|attempt| attempt.row.at.clone()));
    // Until the send is settled, it is unknown whether the attempt has begun.
    let attempted_at =
        if send.status == SendStatus::Sending { None } else { row.maybe_shown("attempted_at")? };
    Ok(SendStages {
        publish: StageStamp::of(row.maybe_shown("published_at")?, by("published_by")?),
        receive: StageStamp::of(Some(send.created_at.clone()), by("received_by")?),
        send: StageStamp::of(attempted_at, by("attempted_by")?),
        settle: match settled_at {
            Some(at) => StageStamp::of(Some(at), by("settled_by")?),
            None => None,
        },
    })
}
