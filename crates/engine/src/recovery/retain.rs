//! Deletes old rows in small batches, so that the pipeline does not have to wait.
//!
//! The database stores a horizon. Rows from before the horizon may be deleted. The horizon moves by at most two days
//! for each day that an instance is running. So there is time to notice a clock that jumped ahead.

use std::time::{Duration, Instant};

use campanile_domain::id::EventSeq;
use campanile_domain::time::{self, Timestamp};
use campanile_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::telemetry::DELETED_ROWS;

const BATCH_ROWS: usize = 1_000;
/// The pause between batches, so that the pipeline has priority.
const PAUSE: Duration = Duration::from_millis(50);
/// The horizon may move this many times as fast as uptime passes, so that it catches up after a longer stop.
const HORIZON_PACE: u32 = 2;

pub async fn run(engine: Engine, stop: CancellationToken) {
    let mut uptime = Uptime::default();
    while !stop.is_cancelled() {
        match run_once(&engine, &mut uptime, &stop).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "retention deleted rows"),
            Err(error) => tracing::warn!(%error, "retention failed; it runs again at the next interval"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(engine.config.retain.interval) => {}
        }
    }
}

/// How long this instance has been up since the horizon last moved. A move by another instance restarts the count when
/// it is seen. So several instances together move the horizon no faster than one.
#[derive(Debug, Default)]
struct Uptime {
    seen: Option<(i64, Instant)>,
}

impl Uptime {
    /// Moves the horizon and returns it: rows that arrived before it may be deleted. Returns `None` while there are no
    /// rows.
    async fn horizon(&mut self, engine: &Engine, age: Duration) -> Result<Option<Timestamp>, StoreError> {
        let now = Instant::now();
        let up = self.seen.map(|(_, since)| now.duration_since(since)).unwrap_or_default();
        let seen = self.seen.map(|(moves, _)| moves);
        let horizon = engine.store.move_horizon(age, seen, up.saturating_mul(HORIZON_PACE)).await?;
        self.seen = horizon.map(|horizon| (horizon.version, now));
        Ok(horizon.map(|horizon| horizon.before))
    }
}

/// Deletes everything that is old enough, and returns the number of deleted rows.
async fn run_once(engine: &Engine, uptime: &mut Uptime, stop: &CancellationToken) -> Result<u64, StoreError> {
    let mut rows = 0;
    // They are of no use once they are not remembered any more, so they follow the clock and no horizon.
    while !stop.is_cancelled()
        && deleted(engine.store.delete_old_idempotency_keys(BATCH_ROWS).await?, &mut rows)
    {
        pause(stop).await;
    }
    let (age, audit_age) = (engine.config.retain.age, engine.config.retain.audit_age);
    // Without an age of events, the horizon follows that of the record of changes.
    let Some(of_horizon) = age.or(audit_age) else { return Ok(rows) };
    let Some(horizon) = uptime.horizon(engine, of_horizon).await? else { return Ok(rows) };
    if age.is_some() {
        delete_events(engine, horizon, &mut rows, stop).await?;
    }
    if let Some(audit_age) = audit_age {
        let before = time::earlier(time::later(horizon, of_horizon), audit_age);
        while !stop.is_cancelled()
            && deleted(engine.store.delete_old_audit(before, BATCH_ROWS).await?, &mut rows)
        {
            pause(stop).await;
        }
    }
    Ok(rows)
}

async fn delete_events(
    engine: &Engine,
    before: Timestamp,
    rows: &mut u64,
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    let mut after = EventSeq::default();
    while !stop.is_cancelled() {
        let retained = engine.store.retain(before, after, BATCH_ROWS).await?;
        deleted(retained.rows, rows);
        let Some(next) = retained.next else { break };
        after = next;
        pause(stop).await;
    }
    Ok(())
}

/// Counts deleted rows. Returns whether there may be more.
fn deleted(count: u64, rows: &mut u64) -> bool {
    *rows += count;
    metrics::counter!(DELETED_ROWS).increment(count);
    count == BATCH_ROWS as u64
}

async fn pause(stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(PAUSE) => {}
    }
}
