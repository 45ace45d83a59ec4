//! Converts rows to types, for both databases. Values that were checked when they were written are trusted when they
//! are read. An invalid value from another program causes an error that names the column.

use std::sync::Arc;

use campanile_domain::event::payload::Payload;
use campanile_domain::event::{BodyHash, Event, transition};
use campanile_domain::fan_out::{Cursor, OutboxRow};
use campanile_domain::id::{EntityId, EntityRef, EntityType, EventId, EventSeq, EventType};
use campanile_domain::id::{NotificationId, SendKey, UserId, UserRef, UserTypeName};
use campanile_domain::queue::Queue;
use campanile_domain::send::{Deferral, History};
use campanile_domain::status::ProcessedStatus;
use campanile_domain::time::Timestamp;

use crate::columns::{Columns, bad};
use crate::{ClaimId, ClaimedEvent, Devices, NewSend, SendJob, StoreError};

/// An event that is not decided yet. Producers may write any values, so all of them are checked.
pub(crate) fn event(row: &impl Columns) -> Result<Event, StoreError> {
    let event = event_at(row, "priority", row.maybe_time("occurred_at")?)?;
    event.check().map_err(|error| bad(error.column, error.detail))?;
    Ok(event)
}

/// The stored hash of an event. An event that can't be read has an empty hash, so that it equals no other body.
pub(crate) fn body_hash(row: &impl Columns) -> BodyHash {
    event(row).map_or_else(|_| BodyHash::stored(""), |event| event.body_hash())
}

/// An event that was checked when it was claimed.
pub(crate) fn decided_event(row: &impl Columns, priority: &str) -> Result<Event, StoreError> {
    event_at(row, priority, row.maybe_time("occurred_at").unwrap_or_default())
}

fn event_at(row: &impl Columns, priority: &str, occurred_at: Option<Timestamp>) -> Result<Event, StoreError> {
    Ok(Event {
        event_id: EventId::stored(row.str("event_id")?),
        event_type: EventType::stored(row.str("event_type")?),
        aggregate_type: row.text("aggregate_type")?,
        aggregate_id: row.text("aggregate_id")?,
        payload: Payload::stored(row.text("payload")?).map_err(|e| bad("payload", e))?,
        priority: row.maybe_parsed(priority)?,
        occurred_at,
        created_at: row.time("created_at")?,
    })
}

/// The columns of an event that a claim reads.
pub(crate) struct ClaimedRow {
    pub event: ClaimedEvent,
    /// The cursor as it is stored. Another release may write the same cursor as different text.
    pub cursor: Option<String>,
    /// Whether nothing has been written for the event yet.
    pub is_new: bool,
}

pub(crate) fn claimed_event(row: &impl Columns) -> Result<ClaimedRow, StoreError> {
    let text = row.maybe_text("fan_out_cursor")?;
    let cursor: Option<Cursor> = text
        .as_deref()
        .map(|text| serde_json::from_str(text).map_err(|e| bad("fan_out_cursor", e)))
        .transpose()?;
    let processed: Option<ProcessedStatus> = row.maybe_parsed("processed")?;
    let is_new = processed.is_none() && cursor.is_none();
    let known = transition::is_known(processed, cursor.as_ref());
    let cancelled = row.flag("cancelled")?;
    let reason = row.maybe_text("reason")?;
    let event = ClaimedEvent {
        seq: EventSeq(row.integer("id")?),
        event: Arc::new(event(row)?),
        cursor,
        known,
        cancelled: cancelled.then(|| reason.unwrap_or_default()),
    };
    Ok(ClaimedRow { event, cursor: text, is_new })
}

pub(crate) fn recipient_of(row: &impl Columns) -> Result<UserRef, StoreError> {
    Ok(UserRef {
        user_type: UserTypeName::stored(row.str("recipient_type")?),
        user_id: UserId::stored(row.str("recipient_id")?),
    })
}

pub(crate) fn entity_of(row: &impl Columns) -> Result<Option<EntityRef>, StoreError> {
    let (entity_type, entity_id) = (row.maybe_str("entity_type")?, row.maybe_str("entity_id")?);
    Ok(entity_type.zip(entity_id).map(|(entity_type, entity_id)| EntityRef {
        entity_type: EntityType::stored(entity_type),
        entity_id: EntityId::stored(entity_id),
    }))
}

pub(crate) fn key_of(row: &impl Columns) -> Result<SendKey, StoreError> {
    Ok(SendKey {
        notification_id: NotificationId(row.uuid("notification_id")?),
        channel: row.parsed("channel")?,
    })
}

pub(crate) fn outbox_row(row: &impl Columns, event: &Event) -> Result<OutboxRow, StoreError> {
    Ok(OutboxRow {
        key: key_of(row)?,
        event_id: event.event_id.clone(),
        recipient: recipient_of(row)?,
        address: row.text("recipient_address")?,
        title: row.text("title")?,
        body: row.text("body")?,
        inbox: None,
        priority: row.parsed("priority")?,
        audience: row.text("audience")?,
        entity: entity_of(row)?,
        shared_read: row.flag("shared_read")?,
        queue: Queue::named(row.str("queue")?),
        failure: None,
    })
}

/// A send without earlier attempts. Columns are read in the order in which every statement names them.
pub(crate) fn job(row: &impl Columns, claim: ClaimId) -> Result<SendJob, StoreError> {
    Ok(SendJob {
        key: key_of(row)?,
        claim,
        event_id: EventId::stored(row.str("event_id")?),
        event_type: EventType::stored(row.str("event_type")?),
        user: recipient_of(row)?,
        address: row.text("recipient_address")?,
        history: History::default(),
        devices: Devices::All,
        title: row.text("title")?,
        body: row.text("body")?,
        priority: row.parsed("priority")?,
        attempt: row.integer::<u32>("attempt_count")? + 1,
        event_created_at: row.time("created_at")?,
    })
}

/// A send that was created from a message.
pub(crate) fn new_send(row: &impl Columns, key: SendKey, event_id: EventId) -> Result<NewSend, StoreError> {
    Ok(NewSend {
        event_id,
        channel: key.channel,
        priority: row.parsed("priority")?,
        event_created_at: row.time("created_at")?,
    })
}

/// A send that may have been attempted before.
pub(crate) fn started_job(row: &impl Columns, claim: ClaimId) -> Result<SendJob, StoreError> {
    let job = job(row, claim)?;
    let since = row.maybe_time("deferred_since")?;
    let count = row.maybe_integer_as("deferrals")?.unwrap_or_default();
    let unanswered = row.maybe_flag("unanswered")?.unwrap_or_default();
    let history = History { deferral: since.map(|since| Deferral { since, count }), unanswered };
    Ok(SendJob { history, ..job })
}

/// A send that was due. Some of its devices may be finished.
pub(crate) fn due_job(row: &impl Columns, claim: ClaimId) -> Result<SendJob, StoreError> {
    let job = started_job(row, claim)?;
    let any_sent = row.maybe_flag("any_sent")?;
    let devices = any_sent.map_or(Devices::All, |any_sent| Devices::Remaining { any_sent });
    Ok(SendJob { devices, ..job })
}
