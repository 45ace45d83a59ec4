//! `POST /v1/explain`: who would be told of an event, over which channels, and why not the others. Writes nothing.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use campanile_domain::decision::Decision;
use campanile_domain::event::NewEvent;
use campanile_domain::time::Timestamp;
use campanile_engine::pipeline::decide;
use serde_json::{Value, json};

use super::body::{self, Sent};
use super::problem::FieldProblem;
use super::{App, Problem};

const MAX_RECIPIENTS: usize = 1_000;

pub async fn explain(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Json<Value>, Problem> {
    let Sent::One(mut event) = body::read(&headers, body).await? else {
        return Err(Problem::malformed("one event at a time: the body must be an object"));
    };
    let mut at = None;
    if let Value::Object(fields) = &mut event {
        at = fields.remove("at").map(|at| moment(&at)).transpose()?;
        // An event that will not be stored needs no id.
        fields.entry("event_id").or_insert_with(|| json!("explain"));
    }
    let events: Vec<NewEvent> = body::typed(vec![event], |_| Ok(()))?;
    let explanation = decide::explain(&app.engine, &events[0], at, MAX_RECIPIENTS).await?;
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

/// A decision with the name and role of whom it is about.
pub fn shown(decision: &Decision) -> Value {
    let mut shown = json!(decision);
    shown["name"] = json!(decision.name);
    shown["role"] = json!(decision.role);
    shown
}

fn moment(at: &Value) -> Result<Timestamp, Problem> {
    let parsed = at.as_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| {
        let detail = "is not a moment: expected RFC 3339, such as 2026-01-21T23:00:00Z".to_owned();
        Problem::invalid(vec![FieldProblem { index: 0, pointer: "/at".to_owned(), detail }])
    })
}
