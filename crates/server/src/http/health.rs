//! Liveness, readiness by component, and metrics.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use campanile_channels::{Chain, Link};
use campanile_engine::BrokerState;
use serde_json::{Map, Value, json};

use super::App;

/// How long the death of a task is reported. The task is restarted and others go on, so the server stays ready.
const DEATH_REPORTED_FOR: Duration = Duration::from_mins(1);

pub async fn live() -> &'static str {
    "ok\n"
}

pub async fn ready(State(app): State<App>) -> Response {
    let database = app.write_probe.run(&app.engine).await;
    let broker = broker(&app.engine.broker_state());
    // A broker outage does not make the server unready: events wait in the database.
    let status = if database.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut components = Map::new();
    components.insert("database".to_owned(), json!(database.err().unwrap_or_else(|| "ok".to_owned())));
    components.insert("broker".to_owned(), json!(broker));
    let engine = match app.engine.last_death() {
        Some(at) if at.elapsed() < DEATH_REPORTED_FOR => "a task died and was restarted; see the log",
        _ => "ok",
    };
    components.insert("engine".to_owned(), json!(engine));
    for (channel, chain) in app.engine.providers().iter() {
        components.insert(channel.as_str().to_lowercase(), Value::from(providers(chain)));
    }
    let undelivered: Map<String, Value> =
        app.engine.undelivered().into_iter().map(|(queue, depth)| (queue, json!(depth))).collect();
    let answer =
        json!({ "components": components, "undelivered": undelivered, "database_id": &*app.database_id });
    (status, Json(answer)).into_response()
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

pub async fn metrics(State(app): State<App>) -> Response {
    let text = format!("{}{}", app.metrics.render(), app.engine.render_latencies());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
