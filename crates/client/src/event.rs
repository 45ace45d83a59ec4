//! An event, validated by the engine's rules.

use std::fmt;
use std::io::{self, Write};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use crate::{Error, time};

/// The limit for ids and names.
pub const MAX_ID_CHARS: usize = 200;
/// The limit for the payload as JSON, with a space after every colon and comma, as PostgreSQL stores it.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// The limit for nested objects and arrays.
pub const MAX_PAYLOAD_DEPTH: usize = 64;

/// How urgent an event is: `High` overtakes `Normal`, and `Normal` overtakes `Low`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    High,
    Normal,
    Low,
}

impl Priority {
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::High => "HIGH",
            Priority::Normal => "NORMAL",
            Priority::Low => "LOW",
        }
    }
}

/// A business fact. Everything that could be wrong with it was checked, so it can be emitted.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "they are named as the columns are")]
pub struct Event {
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) payload: String,
    pub(crate) priority: Option<Priority>,
    pub(crate) occurred_at: Option<String>,
}

impl Event {
    /// What happened (`event_type`), and to what (`aggregate_type` and `aggregate_id`). The id identifies this one fact
    /// forever: an event that is emitted twice under one id is sent once.
    pub fn new(
        event_id: impl Into<String>,
        event_type: impl Into<String>,
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
    ) -> Result<Self, Error> {
        Ok(Event {
            event_id: id(event_id.into())?,
            event_type: name("event_type", event_type.into())?,
            aggregate_type: name("aggregate_type", aggregate_type.into())?,
            aggregate_id: name("aggregate_id", aggregate_id.into())?,
            payload: "{}".to_owned(),
            priority: None,
            occurred_at: None,
        })
    }

    /// The data for rules and templates: anything that serialises to a JSON object.
    pub fn payload<T: Serialize + ?Sized>(self, payload: &T) -> Result<Self, Error> {
        let bad = |why: String| Error::invalid("payload", why);
        let value = serde_json::to_value(payload)
            .map_err(|error| bad(format!("can't be written as JSON: {error}")))?;
        if !value.is_object() {
            return Err(bad(format!("must be a JSON object, is {}", kind(&value))));
        }
        if let Some(flaw) = flaw(&value, MAX_PAYLOAD_DEPTH) {
            return Err(bad(flaw));
        }
        let payload = as_stored(&value);
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(bad(format!(
                "must have at most {MAX_PAYLOAD_BYTES} bytes, has {}: keep large data elsewhere and refer to it",
                payload.len()
            )));
        }
        Ok(Event { payload, ..self })
    }

    /// The urgency. Without one, the event's route decides.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Event { priority: Some(priority), ..self }
    }

    /// When it happened, if not just now. Types of jiff, chrono and time convert to [`SystemTime`].
    pub fn occurred_at(self, at: impl Into<SystemTime>) -> Result<Self, Error> {
        let text = time::to_text(at.into());
        let text = text.ok_or_else(|| Error::invalid("occurred_at", "must lie in the years 1 to 9999"))?;
        Ok(Event { occurred_at: Some(text), ..self })
    }

    pub fn event_id(&self) -> &str {
        &self.event_id
    }
}

/// Payloads must not be logged.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("event_id", &self.event_id)
            .field("event_type", &self.event_type)
            .field("aggregate_type", &self.aggregate_type)
            .field("aggregate_id", &self.aggregate_id)
            .finish_non_exhaustive()
    }
}

/// Clients and proxies remove `.` and `..` from paths, so such an event could not be requested.
pub(crate) fn id(text: String) -> Result<String, Error> {
    match text.as_str() {
        "." | ".." => Err(Error::invalid("event_id", "must not be `.` or `..`: no URL can name it")),
        _ => name("event_id", text),
    }
}

pub(crate) fn name(field: &'static str, text: String) -> Result<String, Error> {
    let chars = text.chars().count();
    if chars == 0 {
        return Err(Error::invalid(field, "must not be empty"));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(field, "must not contain control characters such as NUL or line breaks"));
    }
    if chars > MAX_ID_CHARS {
        return Err(Error::invalid(
            field,
            format!("must have at most {MAX_ID_CHARS} characters, has {chars}"),
        ));
    }
    Ok(text)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// What the engine would refuse in a value, if `levels` more levels of nesting may follow.
fn flaw(value: &Value, levels: usize) -> Option<String> {
    let of_text = |text: &str| {
        text.contains('\0')
            .then(|| "must not contain the character NUL, which PostgreSQL can't store".to_owned())
    };
    match value {
        Value::Null | Value::Bool(_) => None,
        Value::String(text) => of_text(text),
        Value::Number(number) => {
            let beyond =
                |number: f64| !(-9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(&number);
            (number.is_f64() && number.as_f64().is_some_and(beyond))
                .then(|| "must only have numbers from -2^63 to 2^64-1: write larger ones as text".to_owned())
        }
        Value::Array(_) | Value::Object(_) if levels == 0 => {
            Some(format!("must be nested at most {MAX_PAYLOAD_DEPTH} levels deep"))
        }
        Value::Array(values) => values.iter().find_map(|value| flaw(value, levels - 1)),
        Value::Object(object) => {
            object.iter().find_map(|(key, value)| of_text(key).or_else(|| flaw(value, levels - 1)))
        }
    }
}

/// Formats JSON with spaces as PostgreSQL shows `jsonb`: the limit applies to that text.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn as_stored(value: &Value) -> String {
    let mut text = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut text, Spaced));
    written.expect("a JSON value can always be written");
    String::from_utf8(text).expect("JSON is text")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn event() -> Event {
        Event::new("a", "ORDER_CREATED", "ORDER", "7").unwrap()
    }

    fn why(result: Result<Event, Error>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn names_are_neither_empty_nor_too_long_and_have_no_control_characters() {
        assert_eq!(why(Event::new("", "T", "ORDER", "7")), "event_id must not be empty");
        assert_eq!(
            why(Event::new("a", "T".repeat(201), "ORDER", "7")),
            "event_type must have at most 200 characters, has 201"
        );
        assert!(
            why(Event::new("a", "T", "OR\nDER", "7")).starts_with("aggregate_type must not contain control")
        );
        assert!(
            why(Event::new("a", "T", "ORDER", "\0")).starts_with("aggregate_id must not contain control")
        );
        assert!(why(Event::new("..", "T", "ORDER", "7")).starts_with("event_id must not be `.`"));
        assert!(Event::new("ü".repeat(200), "T", "ORDER", "7").is_ok());
    }

    #[test]
    fn payload_is_an_object() {
        for (payload, kind) in [
            (json!(null), "null"),
            (json!(true), "a boolean"),
            (json!(7), "a number"),
            (json!("x"), "text"),
            (json!([]), "an array"),
        ] {
            assert_eq!(why(event().payload(&payload)), format!("payload must be a JSON object, is {kind}"));
        }
        assert_eq!(
            event().payload(&json!({ "a": [1, 2], "b": {} })).unwrap().payload,
            r#"{"a": [1, 2], "b": {}}"#
        );
    }

    #[test]
    fn payload_has_a_limit() {
        let of_bytes = |bytes: usize| json!({ "x": "x".repeat(bytes - 9) });
        assert!(event().payload(&of_bytes(MAX_PAYLOAD_BYTES)).is_ok());
        let error = why(event().payload(&of_bytes(MAX_PAYLOAD_BYTES + 1)));
        assert!(error.starts_with("payload must have at most 65536 bytes, has 65537"), "{error}");
    }

    #[test]
    fn payload_has_no_nul() {
        for payload in [json!({ "a": ["\0"] }), json!({ "\0": 1 }), json!({ "a": { "b": "x\0" } })] {
            assert!(why(event().payload(&payload)).contains("NUL"), "{payload}");
        }
        assert!(event().payload(&json!({ "a": "\\u0000" })).is_ok());
    }

    #[test]
    fn payload_has_numbers_and_levels_that_every_reader_knows() {
        let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "x": inner }));
        assert!(event().payload(&nested(MAX_PAYLOAD_DEPTH)).is_ok());
        assert!(why(event().payload(&nested(MAX_PAYLOAD_DEPTH + 1))).contains("at most 64 levels"));
        assert!(event().payload(&json!({ "a": [u64::MAX, i64::MIN, 0.1] })).is_ok());
        assert!(why(event().payload(&json!({ "a": 1e30 }))).contains("numbers from"));
    }

    #[test]
    fn time_lies_in_years_that_databases_know() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_768_990_530);
        assert_eq!(event().occurred_at(at).unwrap().occurred_at.as_deref(), Some("2026-01-21T10:15:30.000Z"));
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(400_000_000_000);
        assert_eq!(why(event().occurred_at(late)), "occurred_at must lie in the years 1 to 9999");
    }

    #[test]
    fn debug_shows_no_payload() {
        let event = event().payload(&json!({ "secret": 1 })).unwrap();
        assert!(!format!("{event:?}").contains("secret"));
    }
}
