//! Measures the age of the oldest waiting item per stage, so that alerts notice a stage that stands still. It only
//! reads, and nothing depends on it.

use std::time::{Duration, Instant};

use campanile_store::{QueueAges, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::idle_backoff::IdleBackoff;
use crate::telemetry::OLDEST_WAITING;

const INTERVAL: Duration = Duration::from_secs(10);
/// After this time without an answer the ages count as unknown.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut idle_backoff = IdleBackoff::default();
    while !stop.is_cancelled() {
        let begun = Instant::now();
        if idle_backoff.is_over(begun) {
            let waiting = measure(&engine).await;
            // Without an answer the next query comes soon: an outage must not look longer than it was.
            if waiting.is_some() {
                idle_backoff = IdleBackoff::after(begun.elapsed(), Instant::now());
            }
            show(waiting);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn measure(engine: &Engine) -> Option<QueueAges> {
    let silence = |_| {
        Err(StoreError::Unavailable(format!("the database did not answer within {QUERY_TIMEOUT:?}").into()))
    };
    let asked = tokio::time::timeout(QUERY_TIMEOUT, engine.store.queue_ages()).await;
    asked
        .unwrap_or_else(silence)
        .inspect(|_| engine.signals.database.record_success("queue_age"))
        .inspect_err(|error| engine.signals.database.record_failure("queue_age", error))
        .ok()
}

/// Sets the gauges; unknown ages become NaN. The last known age would hide that it grows, and zero would look healthy.
fn show(waiting: Option<QueueAges>) {
    let seconds =
        |age: fn(QueueAges) -> Duration| waiting.map_or(f64::NAN, |waiting| age(waiting).as_secs_f64());
    for (stage, age) in [
        ("fan_out", seconds(|waiting| waiting.fan_out)),
        ("publish", seconds(|waiting| waiting.publish)),
        ("receive", seconds(|waiting| waiting.receive)),
        ("send", seconds(|waiting| waiting.send)),
    ] {
        metrics::gauge!(OLDEST_WAITING, "stage" => stage).set(age);
    }
}
