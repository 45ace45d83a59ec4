//! Liveness, readiness by component, and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use campanile_channels::{Chain, Link};
use campanile_engine::BrokerState;
use serde::Serialize;
use utoipa::ToSchema;

use super::App;

/// How long the death of a task is reported. The task is restarted and others go on, so the server stays ready.
const DEATH_REPORTED_FOR: Duration = Duration::from_mins(1);

/// Check liveness
#[utoipa::path(
    get, path = "/healthz", tag = "health", operation_id = "check_liveness",
    responses((status = 200, description = "The process answers.", body = String, content_type = "text/plain")),
)]
pub async fn live() -> &'static str {
    "ok\n"
}

/// What this instance can reach.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ok`, or what is wrong, by component.
    #[schema(example = json!({"database": "ok", "broker": "ok", "engine": "ok"}))]
    components: BTreeMap<String, String>,
    /// Undelivered messages by queue.
    undelivered: BTreeMap<String, usize>,
    /// Differs for each database.
    database_id: String,
}

/// Check readiness
///
/// An instance is ready while it can write to its database.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "check_readiness",
    responses(
        (status = 200, description = "Events can be accepted.", body = Readiness),
        (status = 503, description = "The database cannot be written.", body = Readiness),
    ),
)]
pub async fn ready(State(app): State<App>) -> (StatusCode, Json<Readiness>) {
    let database = app.write_probe.run(&app.engine).await;
    // A broker outage does not make the server unready: events wait in the database.
    let status = if database.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let engine = match app.engine.last_death() {
        Some(at) if at.elapsed() < DEATH_REPORTED_FOR => "a task died and was restarted; see the log",
        _ => "ok",
    };
    let mut components = BTreeMap::from([
        ("database".to_owned(), database.err().unwrap_or_else(|| "ok".to_owned())),
        ("broker".to_owned(), broker(&app.engine.broker_state())),
        ("engine".to_owned(), engine.to_owned()),
    ]);
    for (channel, chain) in app.engine.providers().iter() {
        components.insert(channel.as_str().to_lowercase(), providers(chain));
    }
    let undelivered = app.engine.undelivered().into_iter().collect();
    (status, Json(Readiness { components, undelivered, database_id: app.database_id.to_string() }))
}

fn providers(chain: &Chain) -> String {
    if chain.captures() {
        return "capture: messages are not sent".to_owned();
    }
    let refusals: Vec<String> = chain.links().iter().flat_map(Link::refusals).collect();
    let down: Vec<String> = chain.links().iter().flat_map(Link::down).collect();
    let troubles: Vec<String> = [
        ("rejects our credentials or account, see `campanile doctor`", refusals),
        ("down, using the next provider", down),
    ]
    .into_iter()
    .filter(|(_, providers)| !providers.is_empty())
    .map(|(trouble, providers)| format!("{trouble}: {}", providers.join(", ")))
    .collect();
    if troubles.is_empty() { "ok".to_owned() } else { troubles.join("; ") }
}

fn broker(state: &BrokerState) -> String {
    match state {
        BrokerState::NotUsed => "not used by this instance's roles".to_owned(),
        BrokerState::Ready => "ok".to_owned(),
        BrokerState::Unavailable { reason } => {
            format!("unavailable, messages wait in the database: {reason}")
        }
        BrokerState::Full { queues } => {
            format!("full, messages wait in the database: {}", queues.join(", "))
        }
    }
}

/// Read metrics
#[utoipa::path(
    get, path = "/metrics", tag = "health", operation_id = "read_metrics",
    responses(
        (status = 200, description = "The text format of Prometheus.", body = String, content_type = "text/plain"),
    ),
)]
pub async fn metrics(State(app): State<App>) -> Response {
    let text = format!("{}{}", app.metrics.render(), app.engine.render_latencies());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
