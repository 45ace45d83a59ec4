//! A million rows that wait: nobody received for a while, and now somebody does.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::bench::Bench;
use crate::probe::{Latency, Priority, Probes};
use crate::process::forget_peak;
use crate::shape::Shape;
use crate::sustained::{Sample, window_of};
use crate::world::{Backend, World};

pub const ROWS: usize = 1_000_000;

#[derive(Debug, Clone, Serialize)]
pub struct Backlog {
    /// While it gets smaller.
    pub sample: Sample,
    /// Of what is urgent, and overtakes it.
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
    world.database.run("UPDATE event_type_channel_routing SET channel = 'WEBSOCKET' WHERE event_type = 'ORDER_CREATED' AND channel = 'SMS'").await?;
    shape.order(world, 0, ROWS.div_ceil(shape.notifications())).await?;
    let engine = world.start_roles("api,fan_out").await?;
    let waiting = "SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'PENDING' LIMIT 1) p";
    while world.database.number(waiting).await? > 0.0 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    engine.stop().await?;
    world.database.run("CHECKPOINT").await?;

    let engine = world.start().await?;
    forget_peak(engine.pid)?;
    let sample = window_of(world, &engine, bench.window).await?;
    // A million last for more than a minute.
    let high = probes.run(world, Priority::High, tokio::time::sleep(bench.window / 3)).await?;
    engine.stop().await?;
    Ok(Backlog { sample, high })
}
