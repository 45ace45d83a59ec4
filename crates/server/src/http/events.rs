//! `/v1/events`: accepts and searches events, and returns the trace of one.

use std::collections::HashMap;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query as Parameters, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use campanile_domain::event::payload::{Payload, PayloadError};
use campanile_domain::event::{Event, NewEvent};
use campanile_domain::id::{EventId, EventType, UserId, UserRef, UserTypeName};
use campanile_domain::time;
use campanile_engine::pipeline::accept::{self, AcceptError};
use campanile_store::{EventFilter, JsonRow, Trace, TraceFilter};
use serde_json::{Value, json};

use super::body::{self, Received, Sent};
use super::problem::FieldProblem;
use super::query::Query;
use super::{App, Problem, explain, send_rows};

const MAX_EVENTS: usize = 1_000;
/// Users of one page of a trace. With five channels this is at most 1,000 rows.
const TRACE_USERS: usize = 200;

pub async fn accept(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let received = body::read(&headers, body).await?;
    let permit = app.heavy.permit(received.len()).await;
    let (events, single) = permit.run(|| events_of(&received))?;
    drop((permit, received));
    let accepted = accept::accept(&app.engine, events).await.map_err(problem)?;
    let mut answers: Vec<Value> =
        accepted.iter().map(|a| json!({ "event_id": a.event_id, "created": a.created })).collect();
    let answer = if single { answers.pop().unwrap_or_default() } else { Value::Array(answers) };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// The events of a body, and whether it was a single event.
fn events_of(received: &Received) -> Result<(Vec<NewEvent>, bool), Problem> {
    let (items, single) = match received.json()? {
        Sent::One(item) => (vec![item], true),
        Sent::Many(items) => (items.at_most(MAX_EVENTS, "events")?, false),
    };
    Ok((body::typed(&items, |_| Ok(()))?, single))
}

fn problem(error: AcceptError) -> Problem {
    let at = |positions: Vec<usize>, detail: &str| {
        let field =
            |index| FieldProblem { index, pointer: "/event_id".to_owned(), detail: detail.to_owned() };
        positions.into_iter().map(field).collect()
    };
    match error {
        AcceptError::Contradictory(positions) => {
            Problem::invalid(at(positions, "duplicate event_id in this request with a different body"))
        }
        AcceptError::Conflicts(positions) => {
            Problem::conflict(at(positions, "already accepted with a different body"))
        }
        AcceptError::Store(error) => Problem::of_write(error),
    }
}

pub async fn list(
    State(app): State<App>,
    Parameters(given): Parameters<HashMap<String, String>>,
) -> Result<Json<Value>, Problem> {
    let mut query = Query::new(given)?;
    let status = query.take("status").map(|status| status.parse()).transpose();
    let newest_first = match query.take("order").as_deref() {
        None | Some("newest") => true,
        Some("oldest") => false,
        Some(other) => {
            return Err(Problem::bad_query(format!("order: `{other}` is neither `newest` nor `oldest`")));
        }
    };
    let filter = EventFilter {
        status: status.map_err(|error| Problem::bad_query(format!("status: {error}")))?,
        event_type: query.take("event_type"),
        after: query.take_number("cursor")?,
        newest_first,
        limit: query.take_limit()?,
    };
    query.end("status, event_type, order, cursor, limit")?;
    let limit = filter.limit;
    let items = app.engine.list_events(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).and_then(|last| last.get("id")).cloned();
    Ok(Json(json!({ "items": items, "next": next })))
}

pub async fn trace(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
    Parameters(given): Parameters<HashMap<String, String>>,
) -> Result<Json<Value>, Problem> {
    let Path(id) = id.map_err(|_| Problem::not_found("the event id is not valid UTF-8"))?;
    let mut query = Query::new(given)?;
    let user = user(query.take("user_type"), query.take("user_id"))?;
    let after = query.take("cursor").map(|cursor| parse_cursor(&cursor)).transpose()?;
    query.end("user_type, user_id, cursor")?;
    let no_such =
        || Problem::not_found(format!("event `{}` not found", id.chars().take(200).collect::<String>()));
    // Producers with SQL may have written an id that HTTP refuses; it can still be looked up.
    if id.contains('\0') {
        return Err(no_such());
    }
    let event_id = EventId::stored(id.clone());
    let filter = TraceFilter { user: user.clone(), after, limit: TRACE_USERS };
    let trace = app.engine.trace(&event_id, filter).await?.ok_or_else(no_such)?;
    let mut decisions = trace.decisions.clone().and_then(into_array).unwrap_or_default();
    if let Some(user) = user {
        decisions.retain(|d| d["user_type"] == json!(user.user_type) && d["user_id"] == json!(user.user_id));
        if trace.decisions.is_none() && trace.processed.is_some() {
            // An unreadable event was not decided.
            if let Ok(event) = stored_event(&trace.event) {
                let computed = app.engine.explain_user(&event, &user).await?;
                decisions = computed.iter().map(explain::shown).collect();
            }
        }
    }
    name_people(&mut decisions, &trace.recipients);
    let Trace { event, processed, mut outbox, notifications, mut sends, dead_letters, next, .. } = trace;
    send_rows::mask_secrets("recipient_address", &mut outbox);
    send_rows::show(app.engine.providers(), &mut sends);
    let next = next.map(|user| format!("{} {}", user.user_type, user.user_id));
    Ok(Json(json!({
        "event": event, "processed": processed, "decisions": decisions, "outbox": outbox,
        "notifications": notifications,
        "sends": sends, "dead_letters": dead_letters, "next": next,
    })))
}

fn into_array(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

/// Adds current names and roles to decisions, for display.
fn name_people(decisions: &mut [Value], people: &[JsonRow]) {
    let by_user: HashMap<(&Value, &Value), &JsonRow> =
        people.iter().map(|person| ((&person["user_type"], &person["user_id"]), person)).collect();
    for decision in decisions {
        if let Some(person) = by_user.get(&(&decision["user_type"], &decision["user_id"])) {
            let (name, role) = (person["name"].clone(), person["role"].clone());
            decision["name"] = name;
            decision["role"] = role;
        }
    }
}

fn user(user_type: Option<String>, user_id: Option<String>) -> Result<Option<UserRef>, Problem> {
    match (user_type, user_id) {
        (None, None) => Ok(None),
        (Some(user_type), Some(user_id)) => {
            let user_type =
                UserTypeName::new(user_type).map_err(|e| Problem::bad_query(format!("user_type: {e}")))?;
            let user_id = UserId::new(user_id).map_err(|e| Problem::bad_query(format!("user_id: {e}")))?;
            Ok(Some(UserRef { user_type, user_id }))
        }
        _ => Err(Problem::bad_query("user_type and user_id must be given together")),
    }
}

fn parse_cursor(cursor: &str) -> Result<UserRef, Problem> {
    let wrong = || Problem::bad_query("cursor: not a cursor of this list; use `next` of its previous page");
    let (user_type, user_id) = cursor.split_once(' ').ok_or_else(wrong)?;
    user(Some(user_type.to_owned()), Some(user_id.to_owned()))?.ok_or_else(wrong)
}

/// The event of a trace, for deciding again.
fn stored_event(row: &JsonRow) -> Result<Event, PayloadError> {
    let text = |column: &str| row.get(column).and_then(Value::as_str).unwrap_or_default().to_owned();
    let moment = |column: &str| row.get(column).and_then(Value::as_str).and_then(time::from_text);
    let payload = row.get("payload").map(ToString::to_string).unwrap_or_default();
    Ok(Event {
        event_id: EventId::stored(text("event_id")),
        event_type: EventType::stored(text("event_type")),
        aggregate_type: text("aggregate_type"),
        aggregate_id: text("aggregate_id"),
        payload: Payload::new(payload)?,
        priority: text("priority").parse().ok(),
        occurred_at: moment("occurred_at"),
        created_at: moment("created_at").unwrap_or_default(),
    })
}
