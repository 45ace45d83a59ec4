//! Reads request bodies: within a limit, as JSON, and into types. Errors name the position and the field.
//!
//! Items stay text until their type is known: some types keep the text unchanged, and no number or key gets lost
//! before.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use super::Problem;
use super::problem::FieldProblem;

pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// A body that is too large is read and dropped up to this size. A client that is cut off while sending sees a broken
/// connection instead of the response.
const MAX_DROPPED_BYTES: usize = 8 * MAX_BODY_BYTES;
/// The most rows or events of a request.
pub const MAX_ITEMS: usize = 10_000;

/// A completely received body.
#[derive(Debug)]
pub struct Received {
    bytes: Vec<u8>,
    /// Whether each line is a JSON value.
    lines: bool,
}

/// One JSON value, or several.
#[derive(Debug)]
pub enum Sent<'a> {
    One(&'a RawValue),
    Many(Items<'a>),
}

/// The items of an array or of lines.
#[derive(Debug, Default)]
pub struct Items<'a> {
    /// At most [`MAX_ITEMS`]. A body could contain four million, which would take eight times its memory.
    kept: Vec<&'a RawValue>,
    count: usize,
}

impl<'a> Items<'a> {
    fn push(&mut self, item: &'a RawValue) {
        self.count += 1;
        if self.kept.len() < MAX_ITEMS {
            self.kept.push(item);
        }
    }

    /// All items, if there are at most `max`.
    pub fn at_most(self, max: usize, what: &str) -> Result<Vec<&'a RawValue>, Problem> {
        if self.count > max.min(MAX_ITEMS) {
            let detail = format!("at most {max} {what} per request, got {}", self.count);
            return Err(Problem::invalid(vec![FieldProblem { index: max, pointer: String::new(), detail }]));
        }
        Ok(self.kept)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Array<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Array<'a> {
            type Value = Items<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Items<'a>, A::Error> {
                let mut items = Items::default();
                while let Some(item) = array.next_element::<&'de RawValue>()? {
                    items.push(item);
                }
                Ok(items)
            }
        }
        deserializer.deserialize_seq(Array(PhantomData))
    }
}

/// The fields of an object, each as text.
pub type Fields = BTreeMap<String, Box<RawValue>>;

pub async fn read(headers: &HeaderMap, body: Body) -> Result<Received, Problem> {
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|n| n.to_str().ok())
        .and_then(|n| n.parse::<usize>().ok());
    // A client that sent `Expect` waits with its body, so it is refused at once.
    if declared.is_some_and(|bytes| bytes > MAX_BODY_BYTES) && headers.contains_key(header::EXPECT) {
        return Err(Problem::too_large(MAX_BODY_BYTES));
    }
    let bytes = whole(body).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let lines =
        content_type.starts_with("application/x-ndjson") || content_type.starts_with("application/jsonl");
    Ok(Received { bytes, lines })
}

impl Received {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the body is empty, or says that there is nothing.
    fn is_blank(&self) -> bool {
        matches!(self.bytes.trim_ascii(), b"" | b"null")
    }

    /// An upper bound of the number of values in the body: its commas outside of texts.
    pub fn count_values(&self) -> usize {
        let (mut count, mut in_text, mut escaped) = (1, false, false);
        for byte in &self.bytes {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                b',' if !in_text => count += 1,
                _ => {}
            }
        }
        count
    }

    pub fn json(&self) -> Result<Sent<'_>, Problem> {
        if self.lines {
            return lines(&self.bytes);
        }
        let sent = if self.bytes.trim_ascii_start().starts_with(b"[") {
            serde_json::from_slice(&self.bytes).map(Sent::Many)
        } else {
            serde_json::from_slice(&self.bytes).map(Sent::One)
        };
        sent.map_err(|error| Problem::malformed(format!("the body is not JSON: {error}")))
    }

    fn object<T: DeserializeOwned>(
        &self,
        check: impl Fn(&T) -> Result<(), FieldProblem>,
    ) -> Result<T, Problem> {
        let value = self.one("the body must be a single object")?;
        typed(&[value], check)?.pop().ok_or_else(|| Problem::malformed("the body is empty"))
    }

    /// The value of a body that must be a single one; `otherwise` says why.
    pub fn one(&self, otherwise: &str) -> Result<&RawValue, Problem> {
        match self.json()? {
            Sent::One(value) => Ok(value),
            Sent::Many(_) => Err(Problem::malformed(otherwise)),
        }
    }
}

async fn whole(mut body: Body) -> Result<Vec<u8>, Problem> {
    let mut kept = Vec::new();
    let mut seen = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame
            .map_err(|error| Problem::malformed(format!("the body was not received completely: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= MAX_BODY_BYTES {
            kept.extend_from_slice(&data);
        } else if seen <= MAX_DROPPED_BYTES {
            kept = Vec::new();
        } else {
            break;
        }
    }
    if seen <= MAX_BODY_BYTES { Ok(kept) } else { Err(Problem::too_large(MAX_BODY_BYTES)) }
}

fn lines(bytes: &[u8]) -> Result<Sent<'_>, Problem> {
    let mut items = Items::default();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let item = serde_json::from_slice(line)
            .map_err(|error| Problem::malformed(format!("line {} is not JSON: {error}", number + 1)))?;
        items.push(item);
    }
    Ok(Sent::Many(items))
}

/// Parses each item as its type, or returns all problems.
pub fn typed<T: DeserializeOwned>(
    items: &[&RawValue],
    check: impl Fn(&T) -> Result<(), FieldProblem>,
) -> Result<Vec<T>, Problem> {
    const MAX_PROBLEMS: usize = 100;
    let mut good = Vec::with_capacity(items.len());
    let mut wrong = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let parsed = parse(item).and_then(|value| check(&value).map(|()| value));
        match parsed {
            Ok(value) => good.push(value),
            Err(problem) => wrong.push(FieldProblem { index, ..problem }),
        }
        if wrong.len() == MAX_PROBLEMS {
            break;
        }
    }
    if wrong.is_empty() { Ok(good) } else { Err(Problem::invalid(wrong)) }
}

/// The single object of a body.
pub async fn one<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    check: impl Fn(&T) -> Result<(), FieldProblem>,
) -> Result<T, Problem> {
    read(headers, body).await?.object(check)
}

/// Like `one`, for bodies that may be empty or null.
pub async fn one_or_default<T: DeserializeOwned + Default>(
    headers: &HeaderMap,
    body: Body,
    check: impl Fn(&T) -> Result<(), FieldProblem>,
) -> Result<T, Problem> {
    let received = read(headers, body).await?;
    if received.is_blank() { Ok(T::default()) } else { received.object(check) }
}

/// An object's fields, so that defaults can be added.
pub fn fields(item: &RawValue) -> Result<Fields, Problem> {
    parse(item).map_err(|problem| Problem::invalid(vec![problem]))
}

pub fn text(text: &str) -> Box<RawValue> {
    to_raw_value(text).expect("text can be written as JSON")
}

/// An object with these fields.
pub fn object(fields: &Fields) -> Box<RawValue> {
    to_raw_value(fields).expect("an object of JSON values can be written")
}

fn parse<T: DeserializeOwned>(item: &RawValue) -> Result<T, FieldProblem> {
    if !item.get().starts_with('{') {
        let detail = "must be a JSON object".to_owned();
        return Err(FieldProblem { index: 0, pointer: String::new(), detail });
    }
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(item.get())).map_err(|error| {
        let mut pointer = pointer(error.path());
        let detail = without_place(error.inner());
        // The path names the object; only the message names the missing field.
        if let Some(field) = detail.strip_prefix("missing field `") {
            let field = field.split('`').next().unwrap_or_default();
            pointer = format!("{pointer}/{field}");
        }
        FieldProblem { index: 0, pointer, detail }
    })
}

/// Removes line and column, because the pointer says where, and clients usually send one line.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).map(str::to_owned).unwrap_or(text)
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter().fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => format!("{pointer}/{index}"),
        Segment::Map { key } => format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { .. } | Segment::Unknown => pointer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_domain::event::NewEvent;
    use serde_json::{Value, json};

    fn parsed(event: &Value) -> Result<NewEvent, FieldProblem> {
        parse(&to_raw_value(event).unwrap())
    }

    fn problem(event: &Value) -> FieldProblem {
        parsed(event).unwrap_err()
    }

    #[test]
    fn problems_name_the_field() {
        let good = json!({"event_id": "1", "event_type": "T", "aggregate_type": "A", "aggregate_id": 5});
        assert!(parsed(&good).is_ok());
        let with = |field: &str, value: Value| {
            let mut event = good.clone();
            event[field] = value;
            problem(&event)
        };
        assert_eq!(with("colour", json!("red")).pointer, "/colour");
        assert_eq!(with("event_id", json!("")).pointer, "/event_id");
        assert_eq!(with("payload", json!([])).pointer, "/payload");
        assert_eq!(with("priority", json!("URGENT")).pointer, "/priority");
        assert_eq!(with("aggregate_id", json!({})).pointer, "/aggregate_id");
        assert_eq!(problem(&json!({"event_id": "1"})).pointer, "/event_type");
        assert_eq!(problem(&json!(7)).detail, "must be a JSON object");
    }
}
