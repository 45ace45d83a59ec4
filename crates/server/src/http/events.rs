//! `/v1/events`: accepts and searches events. The trace of one has a file of its own.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use campanile_domain::event::NewEvent;
use campanile_domain::id::{EventId, UserId, UserRef, UserTypeName};
use campanile_domain::status::EventStatus;
use campanile_domain::time::Moment;
use campanile_engine::pipeline::accept::{self, AcceptError};
use campanile_store::{EventFilter, EventPage, ListedEvent};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::Caller;
use super::body::{self, Received, Sent};
use super::params::{Limit, Page, Params, number, parsed};
use super::problem::FieldProblem;
use super::redaction::Redaction;
use super::{App, Problem};

const MAX_EVENTS: usize = 1_000;

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
    /// Only events that this user was notified of; together with `user_id`. Narrow it by another filter.
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
    #[serde(default, deserialize_with = "number")]
    #[param(value_type = Option<String>)]
    cursor: Option<i64>,
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
        Ok(EventFilter {
            status: self.status,
            event_type: self.event_type,
            aggregate,
            user: user(self.user_type, self.user_id)?,
            since: self.since.map(|Moment(at)| at),
            until: self.until.map(|Moment(at)| at),
            error_code: self.error_code,
            after: self.cursor,
            newest_first: self.order == Order::Newest,
            limit: self.limit.0,
        })
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
        Redaction::of(&caller).listed_event(event);
    }
    Ok(Json(Page { items, next: next.map(|next| next.to_string()) }))
}

pub fn user(user_type: Option<UserTypeName>, user_id: Option<UserId>) -> Result<Option<UserRef>, Problem> {
    match (user_type, user_id) {
        (None, None) => Ok(None),
        (Some(user_type), Some(user_id)) => Ok(Some(UserRef { user_type, user_id })),
        _ => Err(Problem::bad_query("user_type and user_id must be given together")),
    }
}
