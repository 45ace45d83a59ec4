//! `/v1/sends`: lists sends, and resolves sends in doubt.

use std::collections::HashMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query as Parameters, State};
use axum::http::{HeaderMap, header};
use campanile_domain::id::SendKey;
use campanile_domain::status::SendStatus;
use campanile_store::{Resolution, Resolved, SendCursor, SendFilter, SendPage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::problem::FieldProblem;
use super::query::Query;
use super::{App, Problem, send_rows};

const MAX_NOTE_CHARS: usize = 2_000;

pub async fn list(
    State(app): State<App>,
    Parameters(given): Parameters<HashMap<String, String>>,
) -> Result<Json<Value>, Problem> {
    let mut query = Query::new(given)?;
    let status = query.take("status").map(|status| status.parse().map_err(|_| unknown_status(&status)));
    let channel = query
        .take("channel")
        .map(|channel| channel.parse().map_err(|error| Problem::bad_query(format!("channel: {error}"))));
    let mut filter = SendFilter {
        status: status.transpose()?,
        channel: channel.transpose()?,
        event_id: query.take("event_id"),
        user_type: query.take("user_type"),
        user_id: query.take("user_id"),
        provider: query.take("provider"),
        after: None,
        limit: query.take_limit()?,
    };
    if let Some(cursor) = query.take("cursor") {
        let wrong = || {
            Problem::bad_query(
                "cursor: not a cursor for these filters; use `next` of the previous page, with the same filters",
            )
        };
        filter.after = Some(filter.cursor(&cursor).ok_or_else(wrong)?);
    }
    query.end("status, channel, event_id, user_type, user_id, provider, cursor, limit")?;
    let SendPage { items, next } = app.engine.list_sends(filter).await?;
    let items = send_rows::shown(app.engine.providers(), items, |send| &mut send.row);
    Ok(Json(json!({ "items": items, "next": next.as_ref().map(SendCursor::to_text) })))
}

fn unknown_status(status: &str) -> Problem {
    let known: Vec<&str> = SendStatus::ALL.iter().map(|status| status.as_str()).collect();
    Problem::bad_query(format!("status: unknown status `{status}`: expected {}", known.join(", ")))
}

/// The body of a resend.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resend {
    note: Option<String>,
}

pub async fn resend(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    // The body is optional.
    let is_empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    let Resend { note } = if is_empty && !headers.contains_key(header::TRANSFER_ENCODING) {
        Resend::default()
    } else {
        one(&headers, body, |resend: &Resend| check_note(resend.note.as_deref())).await?
    };
    resolve(&app, &id, Resolution::Resend, note).await
}

/// The body of a settlement: the outcome that a person knows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    #[serde(rename = "as")]
    end: End,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum End {
    Sent,
    Failed,
}

pub async fn settle(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let Settle { end, note } =
        one(&headers, body, |settle: &Settle| check_note(settle.note.as_deref())).await?;
    let resolution = match end {
        End::Sent => Resolution::Sent,
        End::Failed => Resolution::Failed,
    };
    resolve(&app, &id, resolution, note).await
}

/// The single object of a body.
async fn one<T: serde::de::DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    check: impl Fn(&T) -> Result<(), FieldProblem>,
) -> Result<T, Problem> {
    let received = body::read(headers, body).await?;
    let value = received.one("the body must be a single object")?;
    body::typed(&[value], check)?.pop().ok_or_else(|| Problem::malformed("the body is empty"))
}

/// Checks a note. It is stored with the errors of attempts, which are one line each.
fn check_note(note: Option<&str>) -> Result<(), FieldProblem> {
    let wrong = |detail: String| FieldProblem { index: 0, pointer: "/note".to_owned(), detail };
    let Some(note) = note else { return Ok(()) };
    match note.chars().count() {
        chars if chars > MAX_NOTE_CHARS => {
            Err(wrong(format!("must have at most {MAX_NOTE_CHARS} characters, has {chars}")))
        }
        _ if note.chars().any(char::is_control) => {
            Err(wrong("must not contain control characters such as NUL or line breaks".to_owned()))
        }
        _ => Ok(()),
    }
}

async fn resolve(
    app: &App,
    id: &str,
    resolution: Resolution,
    note: Option<String>,
) -> Result<Json<Value>, Problem> {
    let key: SendKey = id.parse().map_err(|error| Problem::not_found(format!("{error}")))?;
    match app.engine.resolve(key, resolution, note).await.map_err(Problem::of_write)? {
        Resolved::Done => Ok(Json(json!({ "id": key.to_string(), "status": resolution.status().as_str() }))),
        Resolved::Unknown => Err(Problem::not_found(format!("send `{key}` not found"))),
        Resolved::NotInDoubt(status) => Err(Problem::not_in_doubt(format!("{key} {}", instead(status)))),
    }
}

/// The status of a send that is not in doubt, and what can be done about it.
fn instead(status: SendStatus) -> &'static str {
    match status {
        SendStatus::Failed => {
            "is FAILED, not IN_DOUBT; to retry, replay its dead letter (POST /v1/dead-letters/replay)"
        }
        SendStatus::Sent => "is already SENT, not IN_DOUBT; nothing was changed",
        SendStatus::Due => "is DUE, not IN_DOUBT; it will be sent automatically",
        SendStatus::Sending => "is SENDING, not IN_DOUBT; it is being sent now",
        SendStatus::Cancelled => "is CANCELLED, not IN_DOUBT; nothing was changed",
        SendStatus::InDoubt => "is IN_DOUBT",
    }
}
