//! `/v1/events`: accepts and searches events, and returns the trace of one.

use std::collections::HashMap;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query as Parameters, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use campanile_domain::event::NewEvent;
use campanile_domain::id::{EventId, UserId, UserRef, UserTypeName};
use campanile_domain::rules::decision::Decision;
use campanile_engine::pipeline::accept::{self, AcceptError};
use campanile_store::{EventFilter, RecipientName, Shown, Trace, TraceFilter};
use serde::Deserialize;
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
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.id);
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
    let Trace {
        event, processed, recipients, mut outbox, notifications, mut sends, dead_letters, next, ..
    } = trace;
    let recorded = trace.decisions.is_some() || processed.is_none();
    let mut decisions = shown_decisions(trace.decisions.unwrap_or_default(), user.as_ref(), &recipients);
    // Of a large audience it is decided again. An unreadable event was not decided.
    if let (Some(user), Some(event), false) = (&user, &event.event, recorded) {
        let computed = app.engine.explain_user(event, user).await?;
        decisions.extend(computed.iter().map(explain::shown));
    }
    for row in &mut outbox {
        send_rows::mask_secret(&row.channel, &mut row.recipient_address);
    }
    for send in &mut sends {
        for of_address in &mut send.addresses {
            send_rows::mask_secret(&send.row.channel, &mut of_address.address);
        }
    }
    let sends = send_rows::shown(app.engine.providers(), sends, |send| &mut send.row);
    let next = next.map(|user| format!("{} {}", user.user_type, user.user_id));
    Ok(Json(json!({
        "event": event, "processed": processed, "decisions": decisions, "outbox": outbox,
        "notifications": notifications,
        "sends": sends, "dead_letters": dead_letters, "next": next,
    })))
}

/// Decisions about everybody, or about one user, with the names and roles of now.
fn shown_decisions(
    decisions: Vec<Shown<Decision>>,
    of_user: Option<&UserRef>,
    people: &[RecipientName],
) -> Vec<Value> {
    let by_user: HashMap<&UserRef, &RecipientName> =
        people.iter().map(|person| (&person.user, person)).collect();
    let shown = |decision: Shown<Decision>| {
        let user = decided_user(&decision);
        if of_user.is_some() && of_user != user.as_ref() {
            return None;
        }
        let mut shown = json!(decision);
        if let (Some(person), Value::Object(shown)) = (user.and_then(|user| by_user.get(&user)), &mut shown) {
            shown.insert("name".to_owned(), json!(person.name));
            shown.insert("role".to_owned(), json!(person.role));
        }
        Some(shown)
    };
    decisions.into_iter().filter_map(shown).collect()
}

fn decided_user(decision: &Shown<Decision>) -> Option<UserRef> {
    match decision {
        Shown::Typed(Decision { user_type, user_id, .. }) => {
            Some(UserRef { user_type: user_type.clone(), user_id: user_id.clone() })
        }
        Shown::Raw(stored) => UserRef::deserialize(stored).ok(),
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
