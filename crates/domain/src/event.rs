//! An event: a business fact. What a producer may say, what is stored, and the hash that tells whether two are the same.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::id::{self, EventId, EventType};
use crate::priority::Priority;
use crate::time::{self, Timestamp};

pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

/// What a producer gives. Making one checks everything that a table or a stage relies on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    pub event_id: EventId,
    pub event_type: EventType,
    #[serde(deserialize_with = "name")]
    pub aggregate_type: String,
    #[serde(deserialize_with = "name")]
    pub aggregate_id: String,
    #[serde(default)]
    pub payload: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
}

fn name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = id::text_or_number(deserializer)?;
    id::check(&text).map_err(serde::de::Error::custom)?;
    Ok(text)
}

/// A JSON object of at most 64 KB, kept as the text that will be stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Payload(Map<String, Value>);

impl Payload {
    pub fn new(object: Map<String, Value>) -> Result<Self, String> {
        let bytes = serde_json::to_string(&object).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(format!(
                "must have at most {MAX_PAYLOAD_BYTES} bytes, has {bytes}: keep large data elsewhere and refer to it"
            ));
        }
        Ok(Payload(object))
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.0).expect("a JSON object can always be written")
    }
}

impl Default for Payload {
    fn default() -> Self {
        Payload(Map::new())
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        match Value::deserialize(deserializer)? {
            Value::Object(object) => Payload::new(object).map_err(D::Error::custom),
            Value::Null => Err(D::Error::custom("must be a JSON object, is null")),
            Value::Bool(_) => Err(D::Error::custom("must be a JSON object, is a boolean")),
            Value::Number(_) => Err(D::Error::custom("must be a JSON object, is a number")),
            Value::String(_) => Err(D::Error::custom("must be a JSON object, is text")),
            Value::Array(_) => Err(D::Error::custom("must be a JSON object, is an array")),
        }
    }
}

/// An event as it stands in `event_outbox`.
#[derive(Debug, Clone)]
pub struct Event {
    pub event_id: EventId,
    pub event_type: EventType,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub payload: Box<RawValue>,
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
            ("payload", self.read_payload()),
            ("priority", self.priority.unwrap_or_default().as_str().into()),
            ("occurred_at", self.occurred_at.unwrap_or(self.created_at).to_string().into()),
        ];
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn read_payload(&self) -> Value {
        serde_json::from_str(self.payload.get()).unwrap_or_default()
    }

    pub fn body_hash(&self) -> BodyHash {
        self.hash_with(&self.read_payload())
    }

    /// The same, for who has the event's document, so that the payload need not be read again.
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

impl NewEvent {
    pub fn body_hash(&self) -> BodyHash {
        BodyHash::of(
            self.event_type.as_str(),
            &self.aggregate_type,
            &self.aggregate_id,
            &self.payload.0,
            self.priority,
            self.occurred_at,
        )
    }

    /// The event as it would be stored now.
    pub fn at(&self, created_at: Timestamp) -> Event {
        Event {
            event_id: self.event_id.clone(),
            event_type: self.event_type.clone(),
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            payload: RawValue::from_string(self.payload.to_json()).expect("a payload is JSON"),
            priority: self.priority,
            occurred_at: self.occurred_at,
            created_at,
        }
    }
}

/// SHA-256 over what makes an event this event. Kept for ever, so that an id seen years ago is still known with its body.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BodyHash(String);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl BodyHash {
    /// Objects in `serde_json` are ordered by key, which makes the text of equal payloads equal.
    fn of(
        event_type: &str,
        aggregate_type: &str,
        aggregate_id: &str,
        payload: &impl Serialize,
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
            r#"{"event_id":"1","event_type":"ORDER_CREATED","aggregate_type":"ORDER","aggregate_id":7,"payload":{"restaurantId":5,"a":[1,2.5,"è"]}}"#,
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
        let new = event(r#"{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":"5","payload":{"z":"è","a":1.50}}"#).unwrap();
        let stored = new.at(Timestamp::UNIX_EPOCH);
        assert_eq!(new.body_hash(), stored.body_hash());
        assert_eq!(new.body_hash(), stored.body_hash_by(&stored.document()));
    }

    #[test]
    fn payloads_that_are_no_objects_or_too_large_are_refused() {
        let with = |payload: &str| {
            event(&format!(
                r#"{{"event_id":"1","event_type":"T","aggregate_type":"A","aggregate_id":"5","payload":{payload}}}"#
            ))
        };
        for payload in ["[]", "\"x\"", "3", "null", "true"] {
            assert!(with(payload).unwrap_err().to_string().contains("must be a JSON object"), "{payload}");
        }
        let large = format!(r#"{{"x":"{}"}}"#, "y".repeat(MAX_PAYLOAD_BYTES));
        assert!(with(&large).unwrap_err().to_string().contains("at most 65536 bytes"));
    }
}
