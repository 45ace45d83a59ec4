//! How soon after its commit a message reaches the provider, at several shares of the greatest rate.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bench::Bench;
use crate::limit::Rate;
use crate::probe::{Latency, Load, Priority, Probes};
use crate::report::{Report, per_second, percent};
use crate::shape::Shape;
use crate::world::{Backend, World};

const SHARES: [f64; 3] = [0.01, 0.1, 0.5];
const SETTLE_IN: Duration = Duration::from_secs(3);
const BACKLOG_TIMEOUT: Duration = Duration::from_mins(2);

/// The latencies; `greatest` was measured before.
pub async fn measure(bench: &Bench, report: &mut Report, greatest: f64) -> Result<()> {
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for share in SHARES {
        let (latency, done) = at_rate(bench, greatest * share, bench.window).await?;
        let load = format!("{} of the greatest rate, {}/s", percent(share), per_second(done));
        rows.push([vec![load, latency.probes.to_string()], latency.cells().to_vec()].concat());
        kept.push(json!({ "share": share, "asked_for": greatest * share, "rate": done, "latency": latency }));
    }
    let columns = [vec!["PostgreSQL + RabbitMQ at", "probes"], Latency::columns().to_vec()].concat();
    let title = "LATENCY: from the start of the transaction to the provider's receipt of the request";
    report.add("latency", title, &columns, &rows, json!(kept));
    Ok(())
}

async fn at_rate(bench: &Bench, rate: f64, length: Duration) -> Result<(Latency, Rate)> {
    let mut world = World::build(bench, Backend::Servers).await?;
    Shape::USUAL.move_in(&world).await?;
    let measured = with_load(&mut world, rate, length).await?;
    world.demolish(bench).await?;
    Ok(measured)
}

/// Waits until the backlog of an earlier run is processed, because it would delay every probe.
async fn nothing_waits(world: &World) -> Result<()> {
    let open = "SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'PUBLISHED' LIMIT 1) o";
    let begun = Instant::now();
    while world.database.number(open).await? > 0.0 {
        ensure!(
            begun.elapsed() < BACKLOG_TIMEOUT,
            "the backlog of an earlier run was not processed within {BACKLOG_TIMEOUT:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Measures latency beside a load of the usual shape, which is captured. Also returns the actual rate, which is lower
/// than requested if the machine is busy.
pub async fn with_load(world: &mut World, rate: Rate, length: Duration) -> Result<(Latency, Rate)> {
    let probes = Probes::install(world).await?;
    let engine = world.start().await?;
    nothing_waits(world).await?;
    let load = Load::start(world, Shape::USUAL, rate).await?;
    tokio::time::sleep(SETTLE_IN).await;
    let (begun, before) = (Instant::now(), engine.sent().await?);
    // Counted at the end of the window, not when the last probe has arrived.
    let done = async {
        tokio::time::sleep(length).await;
        Ok::<_, anyhow::Error>((engine.sent().await? - before) / begun.elapsed().as_secs_f64())
    };
    let (latency, done) = tokio::join!(probes.run(world, Priority::Normal, tokio::time::sleep(length)), done);
    let (latency, done) = (latency?, done?);
    load.stop().await?;
    engine.stop().await?;
    ensure!(done > rate / 2.0, "requested load {rate:.0}/s, achieved only {done:.0}/s");
    Ok((latency, done))
}
