//! Liveness, readiness by component, and metrics.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::App;

const PATIENCE: Duration = Duration::from_secs(2);

pub async fn live() -> &'static str {
    "ok\n"
}

pub async fn ready(State(app): State<App>) -> Response {
    let database = match tokio::time::timeout(PATIENCE, app.engine.store.rule_version()).await {
        Ok(Ok(_)) => "ok".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    let status = if database == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut components = Map::new();
    components.insert("database".to_owned(), json!(database));
    components.insert("broker".to_owned(), json!("ok"));
    for (channel, provider) in app.engine.providers.iter() {
        let state = if provider.captures() { "capture: nothing leaves this machine" } else { "ok" };
        components.insert(channel.as_str().to_lowercase(), Value::from(state));
    }
    (status, Json(json!({ "components": components }))).into_response()
}

pub async fn metrics(State(app): State<App>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render()).into_response()
}
