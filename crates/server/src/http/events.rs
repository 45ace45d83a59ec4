//! `/v1/events`: accepts and searches events, and returns the trace of one.

use std::collections::HashMap;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use campanile_domain::event::NewEvent;
use campanile_domain::id::{EventId, UserId, UserRef, UserTypeName};
use campanile_domain::rules::decision::Decision;
use campanile_domain::status::EventStatus;
use campanile_domain::time::Moment;
use campanile_engine::pipeline::accept::{self, AcceptError};
use campanile_store::{
    DeadLetterRow, EventCursor, EventFilter, EventPage, ListedEvent, NotificationRow, OutboxView,
    ProcessedRow, RecipientName, Shown, Trace, TraceFilter, TracedEvent, TracedSend,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::access::Caller;
use super::body::{self, Received, Sent};
use super::params::{Limit, Page, Params, parsed};
use super::problem::FieldProblem;
use super::send_rows::{self, ShownSend};
use super::sight::Sight;
use super::{App, Problem};

const MAX_EVENTS: usize = 1_000;
/// Users of one page of a trace. With five channels this is at most 1,000 rows.
const TRACE_USERS: usize = 200;

/// One event, or an array of at most 1,000, which are accepted together.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes a body whose items stay text until they are parsed")]
enum Events {
    One(NewEvent),
    Many(Vec<NewEvent>),
}

/// Whether an event is new.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"event_id": "order-1001", "created": true}))]
pub struct AcceptedEvent {
    event_id: EventId,
    /// False if the same event was accepted before.
    created: bool,
}

/// One answer, or one for each event of an array, in its order.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AcceptedEvents {
    One(AcceptedEvent),
    Many(Vec<AcceptedEvent>),
}

/// Emit events
///
/// All events of a request are accepted in one transaction, or none. An event that was accepted before with the same
/// body is not created again. Lines of JSON are accepted as `application/x-ndjson`.
#[utoipa::path(
    post, path = "/v1/events", tag = "events", operation_id = "emit_events",
    request_body(content((Events = "application/json"), (String = "application/x-ndjson"))),
    responses(
        (status = 202, description = "Every event is accepted.", body = AcceptedEvents),
        (status = 409, description = "An id was accepted before with another body.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn accept(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<AcceptedEvents>), Problem> {
    let received = body::read(&headers, body).await?;
    let permit = app.heavy.permit(received.len()).await;
    let (events, single) = permit.run(|| events_of(&received))?;
    drop((permit, received));
    let accepted = accept::accept(&app.engine, events).await.map_err(problem)?;
    let mut answers: Vec<AcceptedEvent> =
        accepted.into_iter().map(|a| AcceptedEvent { event_id: a.event_id, created: a.created }).collect();
    let answer = match answers.pop() {
        Some(only) if single => AcceptedEvents::One(only),
        last => {
            answers.extend(last);
            AcceptedEvents::Many(answers)
        }
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
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

/// Which events to list, and in which order. Each filter that is given must match.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    #[serde(default, deserialize_with = "parsed")]
    #[param(value_type = Option<EventStatus>, example = "FAILED")]
    status: Option<EventStatus>,
    #[param(example = "ORDER_CREATED")]
    event_type: Option<String>,
    /// Together with `aggregate_id`.
    #[param(example = "ORDER")]
    aggregate_type: Option<String>,
    #[param(example = "1001")]
    aggregate_id: Option<String>,
    /// Only events that this user was notified of; together with `user_id`.
    #[param(value_type = Option<UserTypeName>)]
    user_type: Option<UserTypeName>,
    #[param(value_type = Option<UserId>)]
    user_id: Option<UserId>,
    /// Only events that arrived at this time or later.
    #[serde(default)]
    since: Option<Moment>,
    /// Only events that arrived before this time.
    #[serde(default)]
    until: Option<Moment>,
    /// Only failed events with this code.
    #[param(example = "NO_RECIPIENTS")]
    error_code: Option<String>,
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// `next` of the previous page. It belongs to these filters and this order.
    cursor: Option<String>,
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Limit,
}

impl EventParams {
    fn filter(self) -> Result<EventFilter, Problem> {
        let aggregate = match (self.aggregate_type, self.aggregate_id) {
            (None, None) => None,
            (Some(aggregate_type), Some(aggregate_id)) => Some((aggregate_type, aggregate_id)),
            _ => return Err(Problem::bad_query("aggregate_type and aggregate_id must be given together")),
        };
        if self.error_code.is_some() && self.status.is_some_and(|status| status != EventStatus::Failed) {
            return Err(Problem::bad_query("error_code: only FAILED events have one; leave out `status`"));
        }
        let filter = EventFilter {
            status: self.status,
            event_type: self.event_type,
            aggregate,
            user: user(self.user_type, self.user_id)?,
            since: self.since.map(|Moment(at)| at),
            until: self.until.map(|Moment(at)| at),
            error_code: self.error_code,
            after: None,
            newest_first: self.order == Order::Newest,
            limit: self.limit.0,
        };
        let after =
            self.cursor.map(|cursor| filter.cursor(&cursor).ok_or_else(foreign_cursor)).transpose()?;
        Ok(EventFilter { after, ..filter })
    }
}

/// The order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Newest,
    Oldest,
}

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "newest" => Ok(Order::Newest),
            "oldest" => Ok(Order::Oldest),
            other => Err(D::Error::custom(format!("`{other}` is neither `newest` nor `oldest`"))),
        }
    }
}

/// Search events
///
/// Each search follows an index and reads a bounded number of events for a page. If few of them match, a page may have
/// fewer items than the limit, or none, and still be followed by another: only a `next` of null ends the list.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "search_events", params(EventParams),
    responses((status = 200, description = "A page of events.", body = Page<ListedEvent>)),
)]
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Params(given): Params<EventParams>,
) -> Result<Json<Page<ListedEvent>>, Problem> {
    let EventPage { mut items, next } = app.engine.search_events(given.filter()?).await?;
    for event in &mut items {
        Sight::of(&caller).listed_event(event);
    }
    Ok(Json(Page { items, next: next.map(EventCursor::to_text) }))
}

/// Which part of a trace to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TraceParams {
    /// Only this user; together with `user_id`.
    #[param(value_type = Option<UserTypeName>)]
    user_type: Option<UserTypeName>,
    #[param(value_type = Option<UserId>)]
    user_id: Option<UserId>,
    cursor: Option<String>,
}

/// What happened to an event: who was to be told, what was decided and why, and each send with its attempts.
#[derive(Debug, Serialize, ToSchema)]
pub struct TraceBody {
    event: TracedEvent,
    /// The result of the decision; null until the event is decided.
    processed: Option<ProcessedRow>,
    decisions: Vec<NamedDecision>,
    outbox: Vec<OutboxView>,
    notifications: Vec<NotificationRow>,
    sends: Vec<ShownSend<TracedSend>>,
    dead_letters: Vec<DeadLetterRow>,
    /// The cursor of the next page of users. Null at the end.
    next: Option<String>,
}

/// The decision about a user, with the name and role of now.
#[derive(Debug, Serialize, ToSchema)]
pub struct NamedDecision {
    #[serde(flatten)]
    #[schema(value_type = Decision)]
    decision: Shown<Decision>,
    name: Option<String>,
    role: Option<String>,
}

/// Read the trace of an event
///
/// Arrays have the rows of at most 200 users. Without the scope `payload`, payloads, addresses and texts are hidden.
#[utoipa::path(
    get, path = "/v1/events/{id}", tag = "events", operation_id = "read_trace",
    params(("id" = String, Path, description = "The event's id.", example = "order-1001"), TraceParams),
    responses(
        (status = 200, description = "The trace.", body = TraceBody),
        (status = 404, description = "There is no such event.", body = Problem,
         content_type = "application/problem+json"),
    ),
)]
pub async fn trace(
    State(app): State<App>,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
    Params(given): Params<TraceParams>,
) -> Result<Json<TraceBody>, Problem> {
    let Path(id) = id.map_err(|_| Problem::not_found("the event id is not valid UTF-8"))?;
    let user = user(given.user_type, given.user_id)?;
    let after = given.cursor.map(|cursor| parse_cursor(&cursor)).transpose()?;
    let no_such =
        || Problem::not_found(format!("event `{}` not found", id.chars().take(200).collect::<String>()));
    // Producers with SQL may have written an id that HTTP refuses; it can still be looked up.
    if id.contains('\0') {
        return Err(no_such());
    }
    let event_id = EventId::stored(id.clone());
    let filter = TraceFilter { user: user.clone(), after, limit: TRACE_USERS };
    let trace = app.engine.trace(&event_id, filter).await?.ok_or_else(no_such)?;
    let recorded = trace.decisions.is_some() || trace.processed.is_none();
    // Of a large audience it is decided again. An unreadable event was not decided.
    let decided_again = match (&user, &trace.event.event) {
        (Some(user), Some(event)) if !recorded => app.engine.explain_user(event, user).await?,
        _ => None,
    };
    Ok(Json(body_of(&app, Sight::of(&caller), trace, user.as_ref(), decided_again)))
}

fn body_of(
    app: &App,
    sight: Sight,
    trace: Trace,
    user: Option<&UserRef>,
    decided_again: Option<Decision>,
) -> TraceBody {
    let Trace {
        mut event,
        processed,
        decisions,
        recipients,
        mut outbox,
        mut notifications,
        mut sends,
        mut dead_letters,
        next,
    } = trace;
    let mut decisions = named(decisions.unwrap_or_default(), user, &recipients);
    decisions.extend(decided_again.map(NamedDecision::of));
    sight.event(&mut event);
    for decision in &mut decisions {
        decision.hide(sight);
    }
    for row in &mut outbox {
        sight.outbox_row(row);
    }
    for row in &mut notifications {
        sight.notification(row);
    }
    for send in &mut sends {
        sight.traced_send(send);
    }
    for row in &mut dead_letters {
        sight.dead_letter(row);
    }
    TraceBody {
        event,
        processed,
        decisions,
        outbox,
        notifications,
        sends: send_rows::shown(app.engine.providers(), sends, |send| &send.row),
        dead_letters,
        next: next.map(|user| format!("{} {}", user.user_type, user.user_id)),
    }
}

impl NamedDecision {
    pub fn of(decision: Decision) -> Self {
        let (name, role) = (decision.name.clone(), decision.role.clone());
        NamedDecision { decision: Shown::Typed(decision), name, role }
    }

    pub fn hide(&mut self, sight: Sight) {
        match &mut self.decision {
            Shown::Typed(decision) => {
                decision.details.values_mut().for_each(|details| sight.details(details));
            }
            Shown::Raw(stored) => sight.details(stored),
        }
    }
}

/// Decisions about everybody, or about one user, with the names and roles of now.
fn named(
    decisions: Vec<Shown<Decision>>,
    of_user: Option<&UserRef>,
    people: &[RecipientName],
) -> Vec<NamedDecision> {
    let by_user: HashMap<&UserRef, &RecipientName> =
        people.iter().map(|person| (&person.user, person)).collect();
    let shown = |decision: Shown<Decision>| {
        let user = decided_user(&decision);
        if of_user.is_some() && of_user != user.as_ref() {
            return None;
        }
        // Only an object can be shown beside other fields.
        let decision = match decision {
            Shown::Raw(stored) if !stored.is_object() => Shown::Raw(json!({ "unreadable": stored })),
            decision => decision,
        };
        let person = user.and_then(|user| by_user.get(&user).copied());
        let (name, role) =
            person.map(|person| (person.name.clone(), person.role.clone())).unwrap_or_default();
        Some(NamedDecision { decision, name, role })
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

fn user(user_type: Option<UserTypeName>, user_id: Option<UserId>) -> Result<Option<UserRef>, Problem> {
    match (user_type, user_id) {
        (None, None) => Ok(None),
        (Some(user_type), Some(user_id)) => Ok(Some(UserRef { user_type, user_id })),
        _ => Err(Problem::bad_query("user_type and user_id must be given together")),
    }
}

fn parse_cursor(cursor: &str) -> Result<UserRef, Problem> {
    let user = cursor.split_once(' ').and_then(|(user_type, user_id)| {
        let (user_type, user_id) = (UserTypeName::new(user_type).ok()?, UserId::new(user_id).ok()?);
        Some(UserRef { user_type, user_id })
    });
    user.ok_or_else(foreign_cursor)
}

fn foreign_cursor() -> Problem {
    Problem::bad_query("cursor: not a cursor of this list; use `next` of its previous page")
}
