//! Events: what a producer may hand in, what is stored, and the hash that tells whether two events are the same.

pub mod payload;
pub mod transition;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::event::payload::Payload;
use crate::id::{self, EventId, EventType};
use crate::priority::Priority;
use crate::schema::{self, JsonObject, schema};
use crate::time::{self, Moment, Timestamp};

/// An event as a producer hands it in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "event_id": "order-1001", "event_type": "ORDER_CREATED", "aggregate_type": "ORDER", "aggregate_id": "1001",
    "payload": {"restaurantId": "5", "items": 3}, "priority": "HIGH",
}))]
pub struct NewEvent {
    pub event_id: EventId,
    pub event_type: EventType,
    #[serde(deserialize_with = "name")]
    #[schema(value_type = AggregateName)]
    pub aggregate_type: String,
    #[serde(deserialize_with = "name")]
    #[schema(value_type = AggregateName)]
    pub aggregate_id: String,
    /// At most 64 KB.
    #[serde(default)]
    #[schema(value_type = JsonObject)]
    pub payload: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, deserialize_with = "moment", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Moment>)]
    pub occurred_at: Option<Timestamp>,
}

/// The schema of an aggregate's type and id.
#[derive(Debug)]
pub struct AggregateName;

schema!(AggregateName, schema::id("", "1001"));

fn moment<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let at = Option::deserialize(deserializer)?;
    at.map_or(Ok(()), time::check).map_err(serde::de::Error::custom)?;
    Ok(at)
}

fn name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = id::text_or_number(deserializer)?;
    id::check(&text).map_err(serde::de::Error::custom)?;
    Ok(text)
}

/// An event as stored in `event_outbox`.
#[derive(Debug, Clone)]
pub struct Event {
    pub event_id: EventId,
    pub event_type: EventType,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub payload: Payload,
    pub priority: Option<Priority>,
    pub occurred_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

impl Event {
    /// The event as one JSON document: what `entity_path` points into, and what `when` and templates read.
    pub fn document(&self) -> Value {
        let fields = [
            ("event_id", self.event_id.as_str().into()),
            ("event_type", self.event_type.as_str().into()),
            ("aggregate_type", self.aggregate_type.as_str().into()),
            ("aggregate_id", self.aggregate_id.as_str().into()),
            ("payload", self.payload.value()),
            ("priority", self.priority.unwrap_or_default().as_str().into()),
            ("occurred_at", self.occurred_at.unwrap_or(self.created_at).to_string().into()),
        ];
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Checks a stored event by the rules for new events. Rows inserted by SQL were checked only by the table's
    /// constraints.
    pub fn check(&self) -> Result<(), EventError> {
        let names = [
            ("event_type", self.event_type.as_str()),
            ("aggregate_type", &self.aggregate_type),
            ("aggregate_id", &self.aggregate_id),
        ];
        let of = |column, error: &dyn std::fmt::Display| EventError { column, detail: error.to_string() };
        id::check_path(self.event_id.as_str()).map_err(|error| of("event_id", &error))?;
        for (column, name) in names {
            id::check(name).map_err(|error| of(column, &error))?;
        }
        self.payload.check().map_err(|error| of("payload", &error))?;
        self.occurred_at.map_or(Ok(()), time::check).map_err(|error| of("occurred_at", &error))
    }

    pub fn body_hash(&self) -> BodyHash {
        self.hash_with(&self.payload.value())
    }

    /// Like `body_hash`, for callers that have the event's document, so that the payload is not parsed again.
    pub fn body_hash_by(&self, document: &Value) -> BodyHash {
        self.hash_with(&document["payload"])
    }

    fn hash_with(&self, payload: &Value) -> BodyHash {
        BodyHash::of(
            self.event_type.as_str(),
            &self.aggregate_type,
            &self.aggregate_id,
            payload,
            self.priority,
            self.occurred_at,
        )
    }
}

/// Why a stored event is unusable, and in which column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventError {
    pub column: &'static str,
    pub detail: String,
}

impl NewEvent {
    pub fn body_hash(&self) -> BodyHash {
        BodyHash::of(
            self.event_type.as_str(),
            &self.aggregate_type,
            &self.aggregate_id,
            &self.payload.value(),
            self.priority,
            self.occurred_at,
        )
    }

    /// The event as it would be stored at `created_at`.
    pub fn at(&self, created_at: Timestamp) -> Event {
        Event {
            event_id: self.event_id.clone(),
            event_type: self.event_type.clone(),
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            payload: self.payload.clone(),
            priority: self.priority,
            occurred_at: self.occurred_at,
            created_at,
        }
    }
}

/// SHA-256 over the fields that identify an event's content. It is kept forever, so that a repeated id can be compared
/// with its first body even years later.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BodyHash(String);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl BodyHash {
    /// `serde_json` orders the keys of objects, so equal payloads have equal texts.
    fn of(
        event_type: &str,
        aggregate_type: &str,
        aggregate_id: &str,
        payload: &Value,
        priority: Option<Priority>,
        occurred_at: Option<Timestamp>,
    ) -> Self {
        let occurred_at = occurred_at.map(time::to_text);
        let body =
            serde_json::to_vec(&(event_type, aggregate_type, aggregate_id, payload, priority, occurred_at))
                .expect("JSON values can be written");
        let mut hex = String::with_capacity(64);
        for byte in Sha256::digest(&body) {
            hex.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        }
        BodyHash(hex)
    }

    pub fn stored(hex: impl Into<String>) -> Self {
        BodyHash(hex.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an event, or one row of it, ended `FAILED`. Written as `CODE: what happened` into `last_error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: &'static str,
    pub detail: String,
}

impl Failure {
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Failure { code, detail: detail.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: &str) -> Result<NewEvent, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_stored_event_is_held_to_the_rules_of_a_new_one() {
        let new =
            event(r#"{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":"5"}"#).unwrap();
        let stored = new.at(Timestamp::UNIX_EPOCH);
        assert_eq!(stored.check(), Ok(()));
        let column = |event: Event| event.check().unwrap_err().column;
        assert_eq!(column(Event { event_id: EventId::stored(".."), ..stored.clone() }), "event_id");
        assert_eq!(
            column(Event { event_type: EventType::stored("a\u{1b}[2J"), ..stored.clone() }),
            "event_type"
        );
        assert_eq!(column(Event { aggregate_id: String::new(), ..stored.clone() }), "aggregate_id");
        let twice = Payload::stored(r#"{"a":1,"a":2}"#.to_owned()).unwrap();
        assert_eq!(column(Event { payload: twice, ..stored.clone() }), "payload");
        let long_ago = "0000-12-31T23:59:59Z".parse().ok();
        assert_eq!(column(Event { occurred_at: long_ago, ..stored }), "occurred_at");
    }

    #[test]
    fn moments_are_of_the_years_that_every_database_keeps() {
        let at = |moment: &str| {
            event(&format!(
                r#"{{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":"5",
                    "occurred_at":"{moment}"}}"#
            ))
        };
        for moment in ["0001-01-01T00:00:00Z", "9999-12-30T00:00:00Z", "2026-01-21T10:15:30+01:00"] {
            assert!(at(moment).is_ok(), "{moment}");
        }
        for moment in [
            "0000-12-31T23:59:59Z",
            "-000001-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-30T00:00:01Z",
        ] {
            assert!(at(moment).is_err(), "{moment}");
        }
    }

    #[test]
    fn the_hash_ignores_key_order_and_spaces() {
        let a = event(
            r#"{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":5,"payload":{"a":1,"b":[2]}}"#,
        );
        let b = event(
            r#"{"payload":{"b":[2], "a":1},"event_id":"2","event_type":"T","aggregate_type":"A","aggregate_id":"5"}"#,
        );
        assert_eq!(a.unwrap().body_hash(), b.unwrap().body_hash());
    }

    #[test]
    fn the_hash_is_the_same_in_every_release() {
        // SHA-256 of `["ORDER_CREATED","ORDER","7",{"a":[1,2.5,"è"],"restaurantId":5},null,null]`.
        let stored = "0948abb638ce3b09df535ad39698ab320cee449bc3806b221df1f0a1e0d9a6db";
        let event = event(
            r#"{"event_id":"1","event_type":"ORDER_CREATED","aggregate_type":"ORDER","aggregate_id":7,
                "payload":{"restaurantId":5,"a":[1,2.5,"è"]}}"#,
        );
        assert_eq!(event.unwrap().body_hash().as_str(), stored);
    }

    #[test]
    fn the_hash_sees_priority_and_time_where_given() {
        let plain =
            event(r#"{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":"5"}"#).unwrap();
        let high = NewEvent { priority: Some(Priority::High), ..plain.clone() };
        let dated = NewEvent { occurred_at: Some(Timestamp::UNIX_EPOCH), ..plain.clone() };
        assert_ne!(plain.body_hash(), high.body_hash());
        assert_ne!(plain.body_hash(), dated.body_hash());
    }

    #[test]
    fn the_stored_event_has_the_hash_of_the_new_one() {
        let new = event(
            r#"{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":"5","payload":{"z":"è","a":1.50}}"#,
        )
        .unwrap();
        let stored = new.at(Timestamp::UNIX_EPOCH);
        assert_eq!(new.body_hash(), stored.body_hash());
        assert_eq!(new.body_hash(), stored.body_hash_by(&stored.document()));
    }
}
