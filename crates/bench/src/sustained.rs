//! How many notifications per second go from committed event to settled send, for as long as there are enough events; and what each
//! costs whom.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::database::Database;
use crate::engine::Engine;
use crate::process::{CpuEach, CpuTime, Memory, memory};
use crate::shape::Shape;
use crate::world::{Backend, World};

/// Until caches are filled, batches have found their size, and every stage has something to do.
pub const WARM_UP: Duration = Duration::from_secs(5);
/// More than can be under way at once: claimed, sent, and not settled yet.
const MAX_UNDER_WAY: f64 = 50_000.0;

#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Notifications per second.
    pub rate: f64,
    pub cpu: CpuEach,
    /// Of PostgreSQL, per notification.
    pub wal_bytes: Option<f64>,
    pub memory: Memory,
}

/// How many a second there are hardly ever more than: so many are written before it begins.
fn ceiling(backend: Backend, shape: Shape) -> f64 {
    let of_large = match backend {
        Backend::Servers => 40_000.0,
        Backend::Mixed => 80_000.0,
        Backend::Embedded => 90_000.0,
    };
    // There the event itself is half of the work.
    if shape.notifications() == 1 { of_large / 2.0 } else { of_large }
}

/// Writes events, starts an engine, measures, stops it, and looks whether what it said is true. The first event has this number; answers
/// the one behind the last, too.
pub async fn sustained(
    world: &World,
    shape: Shape,
    window: Duration,
    mut first: usize,
) -> Result<(Sample, usize)> {
    let mut ceiling = ceiling(world.backend, shape);
    loop {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate"
        )]
        let events = ((WARM_UP + window).as_secs_f64() * ceiling / shape.notifications() as f64) as usize;
        let sample = run(world, shape, window, first, events).await?;
        first += events;
        match sample {
            Some(sample) => return Ok((sample, first)),
            None => eprintln!("  all events were done before the time was up; again, with twice as many"),
        }
        ceiling *= 2.0;
    }
}

/// Nothing, if these were not enough events.
async fn run(
    world: &World,
    shape: Shape,
    window: Duration,
    first: usize,
    events: usize,
) -> Result<Option<Sample>> {
    shape.order(world, first, events).await?;
    if let Database::Postgres { .. } = world.database {
        // Otherwise the one that writing the events brought about would fall into this run or the next, by chance.
        world.database.run("CHECKPOINT").await?;
    }
    let sent_before = count_sent(world).await?;
    let engine = world.start().await?;
    let sample = window_of(world, &engine, window).await?;
    let pending = world
        .database
        .number("SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'PENDING' LIMIT 1) p")
        .await?;
    let said = engine.sent().await?;
    engine.stop().await?;
    check(world, said, count_sent(world).await? - sent_before).await?;
    // What is left would be the next run's warm-up, with another mixture.
    world.database.run("DELETE FROM event_outbox WHERE status = 'PENDING'").await?;
    Ok((pending > 0.0).then_some(sample))
}

/// What an engine that is busy does within so long.
pub async fn window_of(world: &World, engine: &Engine, window: Duration) -> Result<Sample> {
    while engine.sent().await? == 0.0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(WARM_UP).await;
    let before = (CpuTime::now(engine.pid)?, written(&world.database).await?);
    let (begun, sent) = (Instant::now(), engine.sent().await?);
    tokio::time::sleep(window).await;
    let (took, sent) = (begun.elapsed(), engine.sent().await? - sent);
    let wal_bytes =
        before.1.zip(written(&world.database).await?).map(|(before, after)| (after - before) / sent.max(1.0));
    let cpu = CpuTime::now(engine.pid)?.since(before.0, sent);
    Ok(Sample { rate: sent / took.as_secs_f64(), cpu, wal_bytes, memory: memory(engine.pid)? })
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

async fn count_sent(world: &World) -> Result<f64> {
    world.database.number("SELECT count(*) FROM send WHERE status = 'SENT'").await
}

/// What the engine counted must be in the database, and what was captured must be there as often as it was sent.
async fn check(world: &World, said: f64, found: f64) -> Result<()> {
    ensure!(
        (said..=said + MAX_UNDER_WAY).contains(&found),
        "the engine said that it had sent {said}, and the database knows of {found}"
    );
    let captured = world.database.number("SELECT count(*) FROM captured_message").await?;
    let sent = world
        .database
        .number("SELECT count(*) FROM send WHERE provider = 'capture' AND status = 'SENT'")
        .await?;
    ensure!((captured - sent).abs() < 0.5, "{sent} were sent by capture, and {captured} are kept");
    Ok(())
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

pub fn median_of(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(of).collect())
}
