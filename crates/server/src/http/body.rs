//! Reading what was sent: within a limit, as JSON, and into types. Whatever is wrong is named by position and field.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Problem;
use super::problem::FieldProblem;

pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// What is too large is read up to here and dropped: who is cut off while sending sees a broken connection, and no answer.
const MAX_DROPPED_BYTES: usize = 8 * MAX_BODY_BYTES;

/// One JSON value, or several lines of it.
#[derive(Debug)]
pub enum Sent {
    One(Value),
    Many(Vec<Value>),
}

pub async fn read(headers: &HeaderMap, body: Body) -> Result<Sent, Problem> {
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|n| n.to_str().ok())
        .and_then(|n| n.parse::<usize>().ok());
    // Who asks first has sent nothing yet, and is told at once.
    if declared.is_some_and(|bytes| bytes > MAX_BODY_BYTES) && headers.contains_key(header::EXPECT) {
        return Err(Problem::too_large(MAX_BODY_BYTES));
    }
    let bytes = whole(body).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if content_type.starts_with("application/x-ndjson") || content_type.starts_with("application/jsonl") {
        return lines(&bytes);
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Array(items)) => Ok(Sent::Many(items)),
        Ok(one) => Ok(Sent::One(one)),
        Err(error) => Err(Problem::malformed(format!("the body is not JSON: {error}"))),
    }
}

async fn whole(mut body: Body) -> Result<Vec<u8>, Problem> {
    let mut kept = Vec::new();
    let mut seen = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame
            .map_err(|error| Problem::malformed(format!("the body did not arrive to its end: {error}")))?;
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

fn lines(bytes: &[u8]) -> Result<Sent, Problem> {
    let mut items = Vec::new();
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

/// Each item as its type, or everything that is wrong.
pub fn typed<T: DeserializeOwned>(
    items: Vec<Value>,
    check: impl Fn(&T) -> Result<(), FieldProblem>,
) -> Result<Vec<T>, Problem> {
    const MAX_PROBLEMS: usize = 100;
    let mut good = Vec::with_capacity(items.len());
    let mut wrong = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
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

fn parse<T: DeserializeOwned>(item: Value) -> Result<T, FieldProblem> {
    if !item.is_object() {
        let detail = "must be a JSON object".to_owned();
        return Err(FieldProblem { index: 0, pointer: String::new(), detail });
    }
    serde_path_to_error::deserialize(item).map_err(|error| {
        let mut pointer = pointer(error.path());
        let detail = error.into_inner().to_string();
        // What is missing is named only in the message; its place is inside what the path names.
        if let Some(field) = detail.strip_prefix("missing field `") {
            let field = field.split('`').next().unwrap_or_default();
            pointer = format!("{pointer}/{field}");
        }
        FieldProblem { index: 0, pointer, detail }
    })
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
    use serde_json::json;

    fn problem(event: Value) -> FieldProblem {
        parse::<NewEvent>(event).unwrap_err()
    }

    #[test]
    fn problems_name_the_field() {
        let good = json!({"event_id": "1", "event_type": "T", "aggregate_type": "A", "aggregate_id": 5});
        assert!(parse::<NewEvent>(good.clone()).is_ok());
        let with = |field: &str, value: Value| {
            let mut event = good.clone();
            event[field] = value;
            problem(event)
        };
        assert_eq!(with("colour", json!("red")).pointer, "/colour");
        assert_eq!(with("event_id", json!("")).pointer, "/event_id");
        assert_eq!(with("payload", json!([])).pointer, "/payload");
        assert_eq!(with("priority", json!("URGENT")).pointer, "/priority");
        assert_eq!(with("aggregate_id", json!({})).pointer, "/aggregate_id");
        assert_eq!(problem(json!({"event_id": "1"})).pointer, "/event_type");
        assert_eq!(problem(json!(7)).detail, "must be a JSON object");
    }
}
