//! `POST /v1/explain`: who would get an event, over which channels, and why not over others. Writes nothing.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use campanile_domain::event::NewEvent;
use campanile_domain::rules::decision::Decision;
use campanile_domain::time::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::body::{self, Received};
use super::problem::FieldProblem;
use super::{App, Problem};

const MAX_RECIPIENTS: usize = 1_000;

pub async fn explain(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Json<Value>, Problem> {
    let received = body::read(&headers, body).await?;
    let permit = app.heavy.permit(received.len()).await;
    let (events, at) = permit.run(|| event_of(&received))?;
    drop((permit, received));
    let explanation = app.engine.explain(&events[0], at, MAX_RECIPIENTS).await?;
    let failure =
        explanation.failure.map(|failure| json!({ "code": failure.code, "detail": failure.detail }));
    Ok(Json(json!({
        "decisions": explanation.decisions.iter().map(shown).collect::<Vec<_>>(),
        "counts": explanation.summary.as_ref().map(|summary| &summary.counts),
        "empty_audiences": explanation.summary.map(|summary| summary.empty_audiences).unwrap_or_default(),
        "failure": failure,
        "truncated": explanation.truncated,
    })))
}

/// The event, and the time to decide for.
fn event_of(received: &Received) -> Result<(Vec<NewEvent>, Option<Timestamp>), Problem> {
    let mut fields = body::fields(received.one("the body must be a single object")?)?;
    let at = fields.remove("at").map(|at| moment(&at)).transpose()?;
    // An event that is not stored needs no id.
    fields.entry("event_id".to_owned()).or_insert_with(|| body::text("explain"));
    Ok((body::typed(&[&body::object(&fields)], |_| Ok(()))?, at))
}

/// A decision with the recipient's name and role.
pub fn shown(decision: &Decision) -> Value {
    let mut shown = json!(decision);
    shown["name"] = json!(decision.name);
    shown["role"] = json!(decision.role);
    shown
}

fn moment(at: &RawValue) -> Result<Timestamp, Problem> {
    serde_json::from_str(at.get()).map_err(|_| {
        let detail = "is not a time: expected RFC 3339, such as 2026-01-21T23:00:00Z".to_owned();
        Problem::invalid(vec![FieldProblem { index: 0, pointer: "/at".to_owned(), detail }])
    })
}
