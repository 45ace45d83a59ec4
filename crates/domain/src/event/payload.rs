//! The payload of an event: a JSON object, kept as the text that the producer wrote, without surrounding white space.
//!
//! JSON parsers disagree about numbers of any size, repeated keys, `\u0000`, and deep nesting. Such texts are refused,
//! with a pointer to the place. So nothing is lost or changed on the way through databases, rules and templates.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// Half of what `serde_json` accepts, because a payload is embedded in other documents.
pub const MAX_PAYLOAD_DEPTH: usize = 64;
/// Longer pointers are cut: keys may be as long as the payload.
const MAX_POINTER_CHARS: usize = 200;

/// A JSON object of at most 64 KB, as text.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Payload(Box<RawValue>);

/// Why a text is not a valid payload, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("is not JSON: {0}")]
    NotJson(String),
    #[error("must be a JSON object, is {0}")]
    NotAnObject(&'static str),
    #[error(
        "must have at most {MAX_PAYLOAD_BYTES} bytes, has {0}: keep large data elsewhere and refer to it"
    )]
    TooLarge(usize),
    #[error("must be nested at most {MAX_PAYLOAD_DEPTH} levels deep, at {0}")]
    TooDeep(String),
    #[error("must not have the same key twice, at {0}")]
    DuplicateKey(String),
    #[error("must not contain \\u0000, at {0}")]
    Nul(String),
    #[error("must not contain half of a surrogate pair, at {0}")]
    Surrogate(String),
    #[error("must only have numbers from -2^63 to 2^64-1: write larger ones as text, at {0}")]
    NumberTooLarge(String),
    #[error("must not have a number so small that it is read as 0: write it as text, at {0}")]
    NumberTooSmall(String),
}

impl Payload {
    /// Parses the text and checks all rules for payloads.
    pub fn new(text: String) -> Result<Self, PayloadError> {
        let payload = Self::stored(text)?;
        payload.check()?;
        Ok(payload)
    }

    /// For text that was checked when its event was fanned out. Accepts any JSON.
    pub fn stored(text: String) -> Result<Self, PayloadError> {
        RawValue::from_string(text).map(Payload).map_err(|error| PayloadError::NotJson(error.to_string()))
    }

    pub fn check(&self) -> Result<(), PayloadError> {
        let text = self.as_str();
        if text.len() > MAX_PAYLOAD_BYTES {
            return Err(PayloadError::TooLarge(text.len()));
        }
        let kind = match text.trim_ascii_start().bytes().next() {
            Some(b'{') => return Scan::default().run(text),
            Some(b'[') => "an array",
            Some(b'"') => "text",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            Some(_) | None => "a number",
        };
        Err(PayloadError::NotAnObject(kind))
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// The payload as a value for rules and templates. A checked payload can always be parsed.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.as_str()).unwrap_or_default()
    }
}

/// A stored payload for display: as JSON, or as a text if it is not a valid payload.
pub fn shown(text: &str) -> Value {
    Payload::new(text.to_owned()).map_or_else(|_| Value::from(text), |payload| payload.value())
}

impl Default for Payload {
    fn default() -> Self {
        Payload(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"))
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let payload = Payload(Box::deserialize(deserializer)?);
        payload.check().map_err(serde::de::Error::custom)?;
        Ok(payload)
    }
}

/// Scans text that is known to be JSON, without recursion.
#[derive(Debug, Default)]
struct Scan<'a> {
    /// The objects and arrays that are open at this place.
    open: Vec<Open<'a>>,
}

#[derive(Debug)]
enum Open<'a> {
    Object { seen: HashSet<Cow<'a, str>>, key: Cow<'a, str>, in_value: bool },
    Array { index: usize },
}

impl<'a> Scan<'a> {
    fn run(&mut self, text: &'a str) -> Result<(), PayloadError> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let mut end = at + 1;
            match byte {
                b'{' => self.enter(Open::Object { seen: HashSet::new(), key: "".into(), in_value: false })?,
                b'[' => self.enter(Open::Array { index: 0 })?,
                b'}' | b']' => drop(self.open.pop()),
                b':' => self.value_follows(),
                b',' => self.next(),
                b'"' => {
                    end = end_of_text(bytes, at);
                    self.text(&text[at..end])?;
                }
                b'-' | b'0'..=b'9' => {
                    end = end_of_number(bytes, at);
                    self.number(&text[at..end])?;
                }
                _ => {}
            }
            at = end;
        }
        Ok(())
    }

    fn enter(&mut self, open: Open<'a>) -> Result<(), PayloadError> {
        if self.open.len() == MAX_PAYLOAD_DEPTH {
            return Err(PayloadError::TooDeep(self.pointer()));
        }
        self.open.push(open);
        Ok(())
    }

    fn value_follows(&mut self) {
        if let Some(Open::Object { in_value, .. }) = self.open.last_mut() {
            *in_value = true;
        }
    }

    fn next(&mut self) {
        match self.open.last_mut() {
            Some(Open::Object { in_value, .. }) => *in_value = false,
            Some(Open::Array { index }) => *index += 1,
            None => {}
        }
    }

    /// Checks a key or value that is given with its quotes.
    fn text(&mut self, quoted: &'a str) -> Result<(), PayloadError> {
        let inner = &quoted[1..quoted.len() - 1];
        let text = if inner.contains('\\') {
            let text = serde_json::from_str(quoted).map_err(|_| PayloadError::Surrogate(self.pointer()))?;
            Cow::Owned(text)
        } else {
            Cow::Borrowed(inner)
        };
        if text.contains('\0') {
            return Err(PayloadError::Nul(self.pointer()));
        }
        let Some(Open::Object { seen, key, in_value: false }) = self.open.last_mut() else { return Ok(()) };
        key.clone_from(&text);
        if seen.insert(text) { Ok(()) } else { Err(PayloadError::DuplicateKey(self.pointer())) }
    }

    /// Refuses numbers beyond 64 bits in any form: databases write `1e30` differently, one of them with 31 digits.
    fn number(&self, number: &str) -> Result<(), PayloadError> {
        if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
            return Ok(());
        }
        let value: f64 = number.parse().unwrap_or(f64::INFINITY);
        if !(-9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(&value)
            || number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
        {
            return Err(PayloadError::NumberTooLarge(self.pointer()));
        }
        let digits = number.split(['e', 'E']).next().unwrap_or_default();
        if value == 0.0 && digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
            return Err(PayloadError::NumberTooSmall(self.pointer()));
        }
        Ok(())
    }

    /// The current place as a JSON pointer.
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for open in &self.open {
            match open {
                Open::Object { key, .. } => {
                    pointer.push('/');
                    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                }
                Open::Array { index } => {
                    write!(pointer, "/{index}").expect("text can be written to");
                }
            }
        }
        if pointer.chars().count() > MAX_POINTER_CHARS {
            pointer = pointer.chars().take(MAX_POINTER_CHARS).chain(['…']).collect();
        }
        format!("`{pointer}`")
    }
}

/// The position after the closing quote of the text that begins at `start`.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn end_of_number(bytes: &[u8], start: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    start + bytes[start..].iter().take_while(|byte| is_part(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Payload::new(text.to_owned()).unwrap_err().to_string()
    }

    fn nested(levels: usize) -> String {
        format!("{{\"x\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
    }

    #[test]
    fn what_is_accepted_is_kept_unchanged() {
        for text in [
            "{}",
            r#" { "b" : 1.50, "a" : [ -0, 0.0, 0e5, 1E2, 18446744073709551615, -9223372036854775808 ] } "#,
            r#"{"a":{"a":{"a":""}},"\u0061b":1,"\"}{":"\\","c":"\ud83d\ude00","d":[[],{},null,true,false]}"#,
            r#"{"digits":0.1234567890123456789012345678901234567890}"#,
            &nested(MAX_PAYLOAD_DEPTH),
        ] {
            let payload = Payload::new(text.to_owned()).unwrap();
            assert_eq!(payload.as_str(), text.trim());
            assert_eq!(payload.value(), serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(shown(text), payload.value());
        }
    }

    #[test]
    fn what_readers_disagree_on_is_refused_with_its_place() {
        for (text, words) in [
            (r#"{"a":1,"b":{"c":1,"c":2}}"#, "the same key twice, at `/b/c`"),
            (r#"{"a":1,"\u0061":2}"#, "the same key twice, at `/a`"),
            (
                r#"{"a":[1,{"b":1e400}]}"#,
                "numbers from -2^63 to 2^64-1: write larger ones as text, at `/a/1/b`",
            ),
            (r#"{"a":18446744073709551616}"#, "at `/a`"),
            (r#"{"a":-9223372036854775809}"#, "numbers from"),
            (r#"{"a":1e20}"#, "numbers from"),
            (r#"{"a":-1e400}"#, "numbers from"),
            (r#"{"a":1e-400}"#, "read as 0: write it as text, at `/a`"),
            (r#"{"a":["x","\u0000"]}"#, "\\u0000, at `/a/1`"),
            (r#"{"a\u0000b":1}"#, "\\u0000"),
            (r#"{"a":"\ud800"}"#, "surrogate pair, at `/a`"),
            (r#"{"a/b":{"~":1e999}}"#, "at `/a~1b/~0`"),
        ] {
            assert!(error(text).contains(words), "{text}: {}", error(text));
            assert_eq!(shown(text), Value::from(text));
        }
        assert!(error(&nested(MAX_PAYLOAD_DEPTH + 1)).contains("at most 64 levels"));
        assert!(error(&nested(30_000)).contains("at most 64 levels"));
        let long_key = format!("{{\"{0}\":1,\"{0}\":2}}", "k".repeat(10_000));
        assert!(error(&long_key).len() < 300);
    }

    #[test]
    fn what_is_no_object_or_too_large_is_refused() {
        for text in ["[]", "\"x\"", "3", "-3", "null", "true", "false"] {
            assert!(error(text).contains("must be a JSON object, is"), "{text}");
        }
        for text in ["", "{", "{} {}", "{a: 1}", "{\"a\":1,}", "{\"a\":01}"] {
            assert!(error(text).contains("is not JSON"), "{text}");
        }
        assert!(error(&format!(r#"{{"x":"{}"}}"#, "y".repeat(MAX_PAYLOAD_BYTES))).contains("at most 65536"));
        let largest = format!(r#"{{"x":"{}"}}"#, "y".repeat(MAX_PAYLOAD_BYTES - 8));
        assert!(Payload::new(largest).is_ok());
    }
}
