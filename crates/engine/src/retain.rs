//! Forgets what is old, a small batch at a time, so that nobody waits for it.

use std::time::Duration;

use campanile_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::telemetry::DELETED_ROWS;

const BATCH_ROWS: usize = 1_000;
/// Between batches, so that the pipeline goes first.
const PAUSE: Duration = Duration::from_millis(50);

pub async fn run(engine: Engine, stop: CancellationToken) {
    let Some(age) = engine.config.retain.age else { return stop.cancelled().await };
    while !stop.is_cancelled() {
        match run_once(&engine, age, &stop).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "old rows were deleted"),
            Err(error) => tracing::warn!(%error, "old rows stay until the next round"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(engine.config.retain.interval) => {}
        }
    }
}

/// One round over everything that is old enough. Answers how many rows were deleted.
pub async fn run_once(engine: &Engine, age: Duration, stop: &CancellationToken) -> Result<u64, StoreError> {
    let (mut rows, mut after) = (0, 0);
    while !stop.is_cancelled() {
        let retained = engine.store.retain(age, after, BATCH_ROWS).await?;
        rows += retained.rows;
        metrics::counter!(DELETED_ROWS).increment(retained.rows);
        let Some(next) = retained.next else { break };
        after = next;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    Ok(rows)
}
