//! Reads what happened to events: the trace of one event, the list of events, and captured messages.

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::event::{Event, payload};
use campanile_domain::id::{
    EntityId, EntityType, EventId, EventSeq, EventType, NotificationId, SendKey, UserId, UserRef,
    UserTypeName,
};
use campanile_domain::priority::Priority;
use campanile_domain::rules::decision::{Decision, VerdictCounts};
use campanile_domain::schema::JsonObject;
use campanile_domain::status::{EventStatus, OutboxStatus, ProcessedStatus};
use campanile_domain::time::Moment;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::columns::Columns;
use crate::dead_letter::DeadLetterRow;
use crate::event_search::{EventFilter, EventPage};
use crate::send_row::TracedSend;
use crate::stage::EventStages;
use crate::{Shown, StoreError, decode};

/// Selects a part of a trace: one user, or at most `limit` users after `after`.
#[derive(Debug, Clone, Default)]
pub struct TraceFilter {
    pub user: Option<UserRef>,
    pub after: Option<UserRef>,
    pub limit: usize,
}

/// What happened to one event.
#[derive(Debug)]
pub struct Trace {
    pub event: TracedEvent,
    pub processed: Option<ProcessedRow>,
    /// The stored decisions. `None` for large audiences.
    pub decisions: Option<Vec<Shown<Decision>>>,
    /// The current name and role of each recipient in the decisions.
    pub recipients: Vec<RecipientName>,
    pub outbox: Vec<OutboxView>,
    pub notifications: Vec<NotificationRow>,
    pub sends: Vec<TracedSend>,
    pub dead_letters: Vec<DeadLetterRow>,
    pub next: Option<UserRef>,
}

/// An event, without its payload.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EventRow {
    pub event_id: EventId,
    pub event_type: EventType,
    /// What the event is about.
    #[schema(example = "ORDER")]
    pub aggregate_type: String,
    #[schema(example = "1001")]
    pub aggregate_id: String,
    #[schema(value_type = Option<Priority>)]
    pub priority: Option<Shown<Priority>>,
    #[schema(value_type = EventStatus)]
    pub status: Shown<EventStatus>,
    #[schema(value_type = u32)]
    pub retry_count: Shown<u32>,
    /// Begins with a code.
    #[schema(example = "NO_RECIPIENTS: nobody is in the audience")]
    pub last_error: Option<String>,
    #[schema(value_type = Option<Moment>)]
    pub occurred_at: Option<Shown<Moment>>,
    #[schema(value_type = Moment)]
    pub created_at: Shown<Moment>,
    #[schema(value_type = Option<Moment>)]
    pub published_at: Option<Shown<Moment>>,
    #[schema(value_type = Option<Moment>)]
    pub processed_at: Option<Shown<Moment>>,
}

/// An event in a list.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ListedEvent {
    pub id: EventSeq,
    #[serde(flatten)]
    pub row: EventRow,
}

/// The event in a trace.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TracedEvent {
    #[serde(flatten)]
    pub row: EventRow,
    /// The payload as it is shown: as text if it is not valid.
    pub payload: Value,
    pub stages: EventStages,
    /// The event as the stages read it, for deciding again. It is missing if it can't be read.
    #[serde(skip)]
    pub event: Option<Event>,
}

/// The stored result of an event's decision, without the decisions themselves.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ProcessedRow {
    #[schema(value_type = ProcessedStatus)]
    pub status: Shown<ProcessedStatus>,
    #[schema(value_type = u64)]
    pub recipients: Shown<u64>,
    #[schema(value_type = u64)]
    pub sends: Shown<u64>,
    #[schema(value_type = VerdictCounts)]
    pub counts: Shown<VerdictCounts>,
    /// Which instance decided.
    #[schema(example = "web-1")]
    pub instance: String,
    #[schema(value_type = Moment)]
    pub created_at: Shown<Moment>,
}

/// A recipient in the decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct RecipientName {
    pub user: UserRef,
    pub name: Option<String>,
    pub role: Option<String>,
}

/// A row of the view `notification_outbox`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct OutboxView {
    #[schema(value_type = SendKey)]
    pub id: Shown<SendKey>,
    pub event_id: EventId,
    pub recipient_type: UserTypeName,
    pub recipient_id: UserId,
    #[schema(value_type = Channel)]
    pub channel: Shown<Channel>,
    #[schema(example = "New order")]
    pub title: String,
    #[schema(example = "3 items")]
    pub body: String,
    /// `***` without the scope `payload`.
    #[schema(example = "anna@example.com")]
    pub recipient_address: String,
    #[schema(value_type = Priority)]
    pub priority: Shown<Priority>,
    #[schema(value_type = Option<Moment>)]
    pub available_at: Option<Shown<Moment>>,
    #[schema(value_type = OutboxStatus)]
    pub status: Shown<OutboxStatus>,
    #[schema(value_type = u32)]
    pub retry_count: Shown<u32>,
    #[schema(example = "REFUSED: the broker refused the message")]
    pub last_error: Option<String>,
    #[schema(value_type = Moment)]
    pub created_at: Shown<Moment>,
    #[schema(value_type = NotificationId)]
    pub notification_id: Shown<NotificationId>,
    /// The audience that the recipient belongs to.
    #[schema(example = "staff")]
    pub audience: String,
    pub entity_type: Option<EntityType>,
    pub entity_id: Option<EntityId>,
    #[schema(value_type = bool)]
    pub shared_read: Shown<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct NotificationRow {
    #[schema(value_type = NotificationId)]
    pub id: Shown<NotificationId>,
    pub event_id: EventId,
    pub event_type: EventType,
    #[serde(flatten)]
    pub user: UserRef,
    pub entity_type: Option<EntityType>,
    pub entity_id: Option<EntityId>,
    #[schema(example = "New order")]
    pub title: String,
    #[schema(example = "3 items")]
    pub body: String,
    /// The audience, the aggregate and the payload. Null without the scope `payload`.
    #[schema(value_type = Option<JsonObject>)]
    pub properties: Value,
    #[schema(value_type = Priority)]
    pub priority: Shown<Priority>,
    #[schema(value_type = bool)]
    pub shared_read: Shown<bool>,
    #[schema(value_type = Option<Moment>)]
    pub read_at: Option<Shown<Moment>>,
    #[schema(value_type = Option<Moment>)]
    pub archived_at: Option<Shown<Moment>>,
    #[schema(value_type = Moment)]
    pub created_at: Shown<Moment>,
}

/// A message that the `capture` provider kept instead of sending it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CapturedRow {
    pub id: i64,
    pub event_id: EventId,
    #[serde(flatten)]
    pub user: UserRef,
    #[schema(value_type = Channel)]
    pub channel: Shown<Channel>,
    #[schema(example = "anna@example.com")]
    pub address: String,
    #[schema(example = "New order")]
    pub title: String,
    #[schema(example = "3 items")]
    pub body: String,
    /// The HTML of an e-mail, if it has any.
    pub html: Option<String>,
    #[schema(value_type = Moment)]
    pub at: Shown<Moment>,
}

#[async_trait]
pub trait TraceStore {
    async fn trace(&self, event_id: &EventId, filter: TraceFilter) -> Result<Option<Trace>, StoreError>;

    /// Searches for events, in the order of their arrival or in the opposite order.
    async fn search_events(&self, filter: EventFilter) -> Result<EventPage, StoreError>;

    async fn list_captured(
        &self,
        event_id: Option<String>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<CapturedRow>, StoreError>;
}

fn event_row(row: &impl Columns) -> Result<EventRow, StoreError> {
    Ok(EventRow {
        event_id: EventId::stored(row.lossy("event_id")?),
        event_type: EventType::stored(row.lossy("event_type")?),
        aggregate_type: row.lossy_text("aggregate_type")?,
        aggregate_id: row.lossy_text("aggregate_id")?,
        priority: row.maybe_shown("priority")?,
        status: row.shown("status")?,
        retry_count: row.shown("retry_count")?,
        last_error: row.maybe_lossy_text("last_error")?,
        occurred_at: row.maybe_shown("occurred_at")?,
        created_at: row.shown("created_at")?,
        published_at: row.maybe_shown("published_at")?,
        processed_at: row.maybe_shown("processed_at")?,
    })
}

pub(crate) fn listed_event(row: &impl Columns) -> Result<ListedEvent, StoreError> {
    Ok(ListedEvent { id: EventSeq(row.integer("id")?), row: event_row(row)? })
}

pub(crate) fn traced_event(
    row: &impl Columns,
    processed: Option<&ProcessedRow>,
) -> Result<TracedEvent, StoreError> {
    let payload = row.maybe_json_text("payload")?.unwrap_or_default();
    let event = event_row(row)?;
    Ok(TracedEvent {
        payload: payload::shown(&payload),
        stages: EventStages::of(&event, processed),
        row: event,
        event: decode::event(row).ok(),
    })
}

pub(crate) fn processed_row(row: &impl Columns) -> Result<ProcessedRow, StoreError> {
    Ok(ProcessedRow {
        status: row.shown("status")?,
        recipients: row.shown("recipients")?,
        sends: row.shown("sends")?,
        counts: Shown::of(row.json("counts")?),
        instance: row.lossy_text("instance")?,
        created_at: row.shown("created_at")?,
    })
}

/// The stored decisions. Anything but a list is shown as an empty list.
pub(crate) fn decisions(row: &impl Columns) -> Result<Option<Vec<Shown<Decision>>>, StoreError> {
    let decisions = row.maybe_json("decisions")?.filter(|decisions| !decisions.is_null());
    Ok(decisions.map(|decisions| match decisions {
        Value::Array(decisions) => decisions.into_iter().map(Shown::of).collect(),
        _ => Vec::new(),
    }))
}

pub(crate) fn user_of(row: &impl Columns) -> Result<UserRef, StoreError> {
    Ok(UserRef {
        user_type: UserTypeName::stored(row.lossy("user_type")?),
        user_id: UserId::stored(row.lossy("user_id")?),
    })
}

pub(crate) fn recipient_name(row: &impl Columns) -> Result<RecipientName, StoreError> {
    Ok(RecipientName {
        user: user_of(row)?,
        name: row.maybe_lossy_text("name")?,
        role: row.maybe_lossy_text("role")?,
    })
}

pub(crate) fn outbox_view(row: &impl Columns) -> Result<OutboxView, StoreError> {
    Ok(OutboxView {
        id: row.shown("id")?,
        event_id: EventId::stored(row.lossy("event_id")?),
        recipient_type: UserTypeName::stored(row.lossy("recipient_type")?),
        recipient_id: UserId::stored(row.lossy("recipient_id")?),
        channel: row.shown("channel")?,
        title: row.lossy_text("title")?,
        body: row.lossy_text("body")?,
        recipient_address: row.lossy_text("recipient_address")?,
        priority: row.shown("priority")?,
        available_at: row.maybe_shown("available_at")?,
        status: row.shown("status")?,
        retry_count: row.shown("retry_count")?,
        last_error: row.maybe_lossy_text("last_error")?,
        created_at: row.shown("created_at")?,
        notification_id: row.shown("notification_id")?,
        audience: row.lossy_text("audience")?,
        entity_type: row.maybe_lossy("entity_type")?.map(EntityType::stored),
        entity_id: row.maybe_lossy("entity_id")?.map(EntityId::stored),
        shared_read: row.shown_flag("shared_read")?,
    })
}

pub(crate) fn notification_row(row: &impl Columns) -> Result<NotificationRow, StoreError> {
    Ok(NotificationRow {
        id: row.shown("id")?,
        event_id: EventId::stored(row.lossy("event_id")?),
        event_type: EventType::stored(row.lossy("event_type")?),
        user: user_of(row)?,
        entity_type: row.maybe_lossy("entity_type")?.map(EntityType::stored),
        entity_id: row.maybe_lossy("entity_id")?.map(EntityId::stored),
        title: row.lossy_text("title")?,
        body: row.lossy_text("body")?,
        properties: row.json("properties")?,
        priority: row.shown("priority")?,
        shared_read: row.shown_flag("shared_read")?,
        read_at: row.maybe_shown("read_at")?,
        archived_at: row.maybe_shown("archived_at")?,
        created_at: row.shown("created_at")?,
    })
}

pub(crate) fn captured_row(row: &impl Columns) -> Result<CapturedRow, StoreError> {
    Ok(CapturedRow {
        id: row.integer("id")?,
        event_id: EventId::stored(row.lossy("event_id")?),
        user: user_of(row)?,
        channel: row.shown("channel")?,
        address: row.lossy_text("address")?,
        title: row.lossy_text("title")?,
        body: row.lossy_text("body")?,
        html: row.maybe_lossy_text("html")?,
        at: row.shown("at")?,
    })
}
