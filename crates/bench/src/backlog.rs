//! The backlog: a million rows wait because nobody received for a while, and now an instance does.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::bench::Bench;
use crate::probe::{Latency, Priority, Probes};
use crate::process::forget_peak;
use crate::shape::Shape;
use crate::sustained::{Sample, WARM_UP, plenty, window_of};
use crate::world::{Backend, World};

/// The least number of rows; more, if so many would be received before the window ends.
const ROWS: usize = 1_000_000;
const FAN_OUT_LIMIT: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, Serialize)]
pub struct Backlog {
    /// Rows that waited when receiving began.
    pub rows: usize,
    /// Measured while the backlog shrinks; everything was fanned out before.
    pub sample: Sample,
    /// Of urgent events, which overtake the backlog.
    pub high: Latency,
}

pub async fn measure(bench: &Bench) -> Result<Backlog> {
    let mut world = World::build(bench, Backend::Servers).await?;
    Shape::USUAL.move_in(&world).await?;
    let measured = work_off(bench, &mut world).await?;
    world.demolish(bench).await?;
    Ok(measured)
}

async fn work_off(bench: &Bench, world: &mut World) -> Result<Backlog> {
    let shape = Shape::USUAL;
    let probes = Probes::install(world).await?;
    let events = plenty(world.backend, shape, bench.window).max(ROWS.div_ceil(shape.notifications()));
    shape.order(world, 0, events).await?;
    let engine = world.start_roles("api,fan_out").await?;
    let begun = Instant::now();
    while world.has_pending_events().await? {
        ensure!(begun.elapsed() < FAN_OUT_LIMIT, "the events are not fanned out within {FAN_OUT_LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    engine.stop().await?;
    world.database.run("CHECKPOINT").await?;

    let engine = world.start().await?;
    forget_peak(engine.pid)?;
    let urgent = async {
        // The queues are created only now.
        tokio::time::sleep(WARM_UP).await;
        probes.run(world, Priority::High, tokio::time::sleep(bench.window)).await
    };
    let (sample, high) = tokio::join!(window_of(world, &engine, bench.window), urgent);
    let (sample, high) = (sample?, high?);
    let left = "SELECT count(*) FROM (SELECT 1 FROM publish_chunk LIMIT 1) c";
    ensure!(world.database.number(left).await? > 0.0, "the backlog was processed before the window ended");
    engine.stop().await?;
    Ok(Backlog { rows: events * shape.notifications(), sample, high })
}
