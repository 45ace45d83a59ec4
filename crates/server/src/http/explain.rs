//! `POST /v1/explain`: who would get an event, over which channels, and why not over others. Writes nothing.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use campanile_domain::event::{AggregateName, NewEvent};
use campanile_domain::id::{EventId, EventType};
use campanile_domain::priority::Priority;
use campanile_domain::rules::decision::VerdictCounts;
use campanile_domain::schema::JsonObject;
use campanile_domain::time::{Moment, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::access::Caller;
use super::body::{self, Received};
use super::problem::FieldProblem;
use super::redaction::Redaction;
use super::trace::NamedDecision;
use super::{App, Problem};

const MAX_RECIPIENTS: usize = 1_000;

/// An event that need not exist, and the time to decide for. Its id may be left out.
#[derive(Debug, ToSchema)]
#[schema(example = json!({
    "event_type": "ORDER_CREATED", "aggregate_type": "ORDER", "aggregate_id": "1001",
    "payload": {"restaurantId": "5"}, "at": "2026-01-21T23:00:00Z",
}))]
#[expect(dead_code, reason = "describes a body whose fields stay text until they are parsed")]
#[serde(deny_unknown_fields)]
struct EventToExplain {
    #[schema(nullable = false)]
    event_id: Option<EventId>,
    event_type: EventType,
    #[schema(value_type = AggregateName)]
    aggregate_type: String,
    #[schema(value_type = AggregateName)]
    aggregate_id: String,
    #[schema(nullable = false)]
    payload: Option<JsonObject>,
    priority: Option<Priority>,
    occurred_at: Option<Moment>,
    /// The time to decide for; now by default.
    #[schema(nullable = false)]
    at: Option<Moment>,
}

/// Who would get an event, and why others would not.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExplanationBody {
    /// The decision about each recipient, at most 1,000.
    decisions: Vec<NamedDecision>,
    /// How often each verdict was given, by channel.
    counts: Option<VerdictCounts>,
    /// Audiences in which nobody is.
    empty_audiences: Vec<String>,
    /// Why the event would fail, if it would.
    failure: Option<ExplainedFailure>,
    /// Whether the event would reach more recipients than are shown.
    truncated: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ExplainedFailure {
    #[schema(example = "NO_RECIPIENTS")]
    code: String,
    detail: String,
}

/// Explain an event
///
/// Decides by the current rules, now or at another time, and writes nothing.
#[utoipa::path(
    post, path = "/v1/explain", tag = "events", operation_id = "explain_event", request_body = EventToExplain,
    responses((status = 200, description = "Who would get it, and why.", body = ExplanationBody)),
)]
pub async fn explain(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ExplanationBody>, Problem> {
    let received = body::read(&headers, body).await?;
    let permit = app.heavy.permit(received.len()).await;
    let (events, at) = permit.run(|| event_of(&received))?;
    drop((permit, received));
    let explanation = app.engine.explain(&events[0], at, MAX_RECIPIENTS).await?;
    let mut decisions: Vec<NamedDecision> =
        explanation.decisions.into_iter().map(NamedDecision::of).collect();
    for decision in &mut decisions {
        decision.hide(Redaction::of(&caller));
    }
    let (counts, empty_audiences) =
        explanation.summary.map(|summary| (summary.counts, summary.empty_audiences)).unzip();
    let failure = explanation
        .failure
        .map(|failure| ExplainedFailure { code: failure.code.to_string(), detail: failure.detail.clone() });
    Ok(Json(ExplanationBody {
        decisions,
        counts,
        empty_audiences: empty_audiences.unwrap_or_default(),
        failure,
        truncated: explanation.truncated,
    }))
}

/// The event, and the time to decide for.
fn event_of(received: &Received) -> Result<(Vec<NewEvent>, Option<Timestamp>), Problem> {
    let mut fields = body::fields(received.one("the body must be a single object")?)?;
    let at = fields.remove("at").map(|at| moment(&at)).transpose()?;
    // An event that is not stored needs no id.
    fields.entry("event_id".to_owned()).or_insert_with(|| body::text("explain"));
    Ok((body::typed(&[&body::object(&fields)], |_| Ok(()))?, at))
}

fn moment(at: &RawValue) -> Result<Timestamp, Problem> {
    serde_json::from_str(at.get()).map_err(|_| {
        let detail = "is not a time: expected RFC 3339, such as 2026-01-21T23:00:00Z".to_owned();
        Problem::invalid(vec![FieldProblem { index: 0, pointer: "/at".to_owned(), detail }])
    })
}
