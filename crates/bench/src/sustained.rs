//! The sustained rate: notifications per second from committed event to settled send, as long as there are enough
//! events; and their cost.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::database::Database;
use crate::engine::Engine;
use crate::probe::Load;
use crate::process::{CpuEach, CpuTime, Memory, memory};
use crate::shape::Shape;
use crate::world::{Backend, World};

/// Until caches are filled, batches have their size, and every stage is busy.
pub const WARM_UP: Duration = Duration::from_secs(5);
/// The time until the first send; connections and queues are created in it.
const FIRST_LIMIT: Duration = Duration::from_mins(1);
/// The permitted difference between the engine's count and the database's. An outcome has the time at which its
/// transaction began, and is counted at its end.
const TOLERANCE: f64 = 0.05;

#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Notifications per second.
    pub rate: f64,
    pub cpu: CpuEach,
    /// Of PostgreSQL, per notification.
    pub wal_bytes: Option<f64>,
    pub memory: Memory,
}

/// More events of this shape than nearly any machine can process in the window.
pub fn plenty(backend: Backend, shape: Shape, window: Duration) -> usize {
    let a_second = match backend {
        Backend::Servers => 40_000.0,
        Backend::Mixed => 80_000.0,
        Backend::Embedded => 90_000.0,
    };
    // With one notification, the event itself is half of the work.
    let a_second = if shape.notifications() == 1 { a_second / 2.0 } else { a_second };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
    let notifications = ((WARM_UP + window).as_secs_f64() * a_second) as usize;
    notifications.div_ceil(shape.notifications())
}

/// Writes events, starts an engine, measures, stops it, and checks its counts. `first` is the number of the first
/// event; the number after the last one is returned, too.
pub async fn sustained(
    world: &World,
    shape: Shape,
    window: Duration,
    mut first: usize,
) -> Result<(Sample, usize)> {
    let mut events = plenty(world.backend, shape, window);
    loop {
        let sample = run(world, shape, window, first, events).await?;
        first += events;
        match sample {
            Some(sample) => return Ok((sample, first)),
            None => {
                eprintln!(
                    "  all events were processed before the window ended; repeating with twice as many"
                );
            }
        }
        events *= 2;
    }
}

/// `None` if these events were not enough.
async fn run(
    world: &World,
    shape: Shape,
    window: Duration,
    first: usize,
    events: usize,
) -> Result<Option<Sample>> {
    shape.order(world, first, events).await?;
    if let Database::Postgres { .. } = world.database {
        // Otherwise the checkpoint for these rows might or might not fall into the measurement.
        world.database.run("CHECKPOINT").await?;
    }
    let engine = world.start().await?;
    let sample = window_of(world, &engine, window).await?;
    let enough = world.has_pending_events().await?;
    engine.stop().await?;
    check_captured(world).await?;
    // The remaining events would be the next run's warm-up, with another mixture.
    world.database.run("DELETE FROM event_outbox WHERE status = 'PENDING'").await?;
    Ok(enough.then_some(sample))
}

/// The same, with business services that write the events meanwhile on the same machine, each in a transaction of its
/// own. They write as fast as they can without getting far ahead.
pub async fn with_producers(
    world: &World,
    shape: Shape,
    window: Duration,
    producers: usize,
) -> Result<Sample> {
    let engine = world.start().await?;
    let load = Load::bounded(world, &engine, shape, producers).await?;
    let sample = window_of(world, &engine, window).await?;
    load.stop().await?;
    engine.stop().await?;
    check_captured(world).await?;
    Ok(sample)
}

/// Measures a busy engine for `window`.
pub async fn window_of(world: &World, engine: &Engine, window: Duration) -> Result<Sample> {
    let begun = Instant::now();
    while engine.sent().await? == 0.0 {
        ensure!(begun.elapsed() < FIRST_LIMIT, "nothing is sent within {FIRST_LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(WARM_UP).await;
    let before = (CpuTime::now(engine.pid)?, written(&world.database).await?);
    let (begun, sent, from) = (Instant::now(), engine.sent().await?, clock(&world.database).await?);
    tokio::time::sleep(window).await;
    let (took, sent, to) = (begun.elapsed(), engine.sent().await? - sent, clock(&world.database).await?);
    let wal_bytes =
        before.1.zip(written(&world.database).await?).map(|(before, after)| (after - before) / sent.max(1.0));
    let cpu = CpuTime::now(engine.pid)?.since(before.0, sent);
    let memory = memory(engine.pid)?;
    let known = count_sent(&world.database, from, to).await?;
    ensure!(
        (known - sent).abs() <= sent * TOLERANCE,
        "the engine reports {sent} sends, the database has {known}"
    );
    Ok(Sample { rate: sent / took.as_secs_f64(), cpu, wal_bytes, memory })
}

/// The database's clock, in seconds.
async fn clock(database: &Database) -> Result<f64> {
    let sql = match database {
        Database::Postgres { .. } => "SELECT extract(epoch FROM clock_timestamp())",
        Database::Sqlite { .. } => "SELECT (julianday('now') - 2440587.5) * 86400",
    };
    database.number(sql).await
}

/// Sends that were sent between these times.
async fn count_sent(database: &Database, from: f64, to: f64) -> Result<f64> {
    let [from, to] = [from, to].map(|seconds| match database {
        Database::Postgres { .. } => format!("to_timestamp({seconds:.6})"),
        Database::Sqlite { .. } => format!("strftime('%Y-%m-%dT%H:%M:%fZ', {seconds:.6}, 'unixepoch')"),
    });
    let sql =
        format!("SELECT count(*) FROM send WHERE status = 'SENT' AND sent_at >= {from} AND sent_at < {to}");
    database.number(&sql).await
}

/// The position of the write-ahead log.
async fn written(database: &Database) -> Result<Option<f64>> {
    match database {
        Database::Postgres { .. } => {
            database.number("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").await.map(Some)
        }
        Database::Sqlite { .. } => Ok(None),
    }
}

/// Checks that as many messages were captured as sent.
async fn check_captured(world: &World) -> Result<()> {
    let captured = world.database.number("SELECT count(*) FROM captured_message").await?;
    let sent = world
        .database
        .number("SELECT count(*) FROM send WHERE provider = 'capture' AND status = 'SENT'")
        .await?;
    ensure!((captured - sent).abs() < 0.5, "{sent} were sent by capture, and {captured} are kept");
    Ok(())
}

/// The middle value, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(values[last / 2], values[last.div_ceil(2)])
}

pub fn median_of(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 8.0]) - 3.0).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
    }
}
