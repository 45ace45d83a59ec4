//! The message that is published to the broker: documented JSON, so that other consumers may bind their own queues.
//! Campanile's own receiver reads only its id.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::channel::Channel;
use crate::event::Event;
use crate::fan_out::OutboxRow;
use crate::id::{EntityId, EntityType, EventId, EventType, UserId, UserTypeName};
use crate::priority::Priority;
use crate::time::Timestamp;

/// Messages do not contain larger payloads; consumers find them in the database.
pub const MAX_PAYLOAD_BYTES: usize = 4 * 1024;

#[derive(Debug, Serialize)]
struct Message<'a> {
    v: u8,
    event_id: &'a EventId,
    event_type: &'a EventType,
    aggregate_type: &'a str,
    aggregate_id: &'a str,
    recipient_type: &'a UserTypeName,
    recipient_id: &'a UserId,
    recipient_address: &'a str,
    channel: Channel,
    title: &'a str,
    body: &'a str,
    priority: Priority,
    shared_read: bool,
    entity_type: Option<&'a EntityType>,
    entity_id: Option<&'a EntityId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    payload_omitted: bool,
    occurred_at: Timestamp,
}

pub fn encode(event: &Event, row: &OutboxRow) -> Vec<u8> {
    let payload = (event.payload.as_str().len() <= MAX_PAYLOAD_BYTES).then_some(event.payload.raw());
    let message = Message {
        v: 1,
        event_id: &event.event_id,
        event_type: &event.event_type,
        aggregate_type: &event.aggregate_type,
        aggregate_id: &event.aggregate_id,
        recipient_type: &row.recipient.user_type,
        recipient_id: &row.recipient.user_id,
        recipient_address: &row.address,
        channel: row.key.channel,
        title: &row.title,
        body: &row.body,
        priority: row.priority,
        shared_read: row.shared_read,
        entity_type: row.entity.as_ref().map(|e| &e.entity_type),
        entity_id: row.entity.as_ref().map(|e| &e.entity_id),
        payload,
        payload_omitted: payload.is_none(),
        occurred_at: event.occurred_at.unwrap_or(event.created_at),
    };
    serde_json::to_vec(&message).expect("a message can always be written")
}
