//! How soon a channel has what was committed, at several shares of the greatest rate.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bench::Bench;
use crate::probe::{Latency, Load, Priority, Probes};
use crate::report::{Report, per_second, percent};
use crate::shape::Shape;
use crate::world::{Backend, World};

const SHARES: [f64; 3] = [0.01, 0.1, 0.5];
const SETTLE_IN: Duration = Duration::from_secs(3);

/// The greatest rate was measured before.
pub async fn measure(bench: &Bench, report: &mut Report, greatest: f64) -> Result<()> {
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for share in SHARES {
        let latency = at_rate(bench, greatest * share, bench.window).await?;
        let load = format!("{} of the greatest rate, {}/s", percent(share), per_second(greatest * share));
        rows.push([vec![load, latency.probes.to_string()], latency.cells().to_vec()].concat());
        kept.push(json!({ "share": share, "rate": greatest * share, "latency": latency }));
    }
    let columns = [vec!["PostgreSQL + RabbitMQ at", "probes"], Latency::columns().to_vec()].concat();
    let title = "LATENCY: from before the transaction to the provider's having the request";
    report.add("latency", title, &columns, &rows, json!(kept));
    Ok(())
}

async fn at_rate(bench: &Bench, rate: f64, length: Duration) -> Result<Latency> {
    let mut world = World::build(bench, Backend::Servers).await?;
    Shape::USUAL.move_in(&world).await?;
    let measured = with_load(&mut world, rate, length).await?;
    world.demolish(bench).await?;
    Ok(measured)
}

/// Beside a load of the usual shape, whose texts are captured as its other messages are.
pub async fn with_load(world: &mut World, rate: f64, length: Duration) -> Result<Latency> {
    let probes = Probes::install(world).await?;
    // The load's texts would go to the provider, too, and its HTTP is not what is measured here.
    world.database.run("UPDATE event_type_channel_routing SET channel = 'WEBSOCKET' WHERE event_type = 'ORDER_CREATED' AND channel = 'SMS'").await?;
    let engine = world.start().await?;
    let load = Load::start(world, Shape::USUAL, rate).await?;
    tokio::time::sleep(SETTLE_IN).await;
    let sent = engine.sent().await?;
    let latency = probes.run(world, Priority::Normal, tokio::time::sleep(length)).await?;
    let done = (engine.sent().await? - sent) / length.as_secs_f64();
    load.stop().await?;
    engine.stop().await?;
    ensure!(done > rate * 0.9, "a load of {rate:.0}/s was asked for, and {done:.0}/s were done");
    Ok(latency)
}
