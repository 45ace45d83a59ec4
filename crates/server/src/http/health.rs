//! Liveness, readiness by component, and metrics.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::App;

const DEATHS: &str = "campanile_task_deaths_total{";
/// A death is reported so long after it was noticed.
const RECENTLY: Duration = Duration::from_mins(1);
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
    let queues = app.engine.broker.depths();
    let full: Vec<&str> = queues
        .iter()
        .map(|(queue, _)| queue.as_str())
        .filter(|queue| app.engine.broker.is_full(queue))
        .collect();
    let broker = if full.is_empty() {
        "ok".to_owned()
    } else {
        format!("full, so that messages wait in the database: {}", full.join(", "))
    };
    components.insert("broker".to_owned(), json!(broker));
    components.insert("engine".to_owned(), json!(app.deaths.report(&app.metrics.render())));
    for (channel, provider) in app.engine.providers.iter() {
        let state = if provider.captures() { "capture: nothing leaves this machine" } else { "ok" };
        components.insert(channel.as_str().to_lowercase(), Value::from(state));
    }
    let undelivered: Map<String, Value> =
        queues.into_iter().map(|(queue, depth)| (queue, json!(depth))).collect();
    (status, Json(json!({ "components": components, "undelivered": undelivered }))).into_response()
}

pub async fn metrics(State(app): State<App>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render()).into_response()
}

/// The deaths of loops that were noticed: how many, and when the last was. A loop that died is started again, and work
/// goes on beside it, so that a death makes no server unready.
#[derive(Debug, Default)]
pub struct Deaths(Mutex<(u64, Option<Instant>)>);

impl Deaths {
    fn report(&self, metrics: &str) -> String {
        let counted: u64 = metrics
            .lines()
            .filter(|line| line.starts_with(DEATHS))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum();
        let mut noticed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted > noticed.0 {
            *noticed = (counted, Some(Instant::now()));
        }
        match noticed.1 {
            Some(last) if last.elapsed() < RECENTLY => {
                format!("a loop died and was started again, {counted} times since the start: see the log")
            }
            _ => "ok".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_reported_for_a_while() {
        let deaths = Deaths::default();
        let none = "# TYPE campanile_task_deaths_total counter\ncampanile_sends_total{channel=\"SMS\"} 7\n";
        assert_eq!(deaths.report(none), "ok");
        let two = format!("{DEATHS}task=\"fan_out\"}} 1\n{DEATHS}task=\"send\"}} 1\n");
        assert!(deaths.report(&two).contains("2 times"));
        assert!(deaths.report(&two).contains("2 times"));
        deaths.0.lock().unwrap().1 = Instant::now().checked_sub(RECENTLY);
        assert_eq!(deaths.report(&two), "ok");
    }
}
