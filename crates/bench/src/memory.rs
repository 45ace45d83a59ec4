//! How much memory an engine uses, and what it costs when idle.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::backlog;
use crate::bench::Bench;
use crate::process::{CpuTime, Memory, memory};
use crate::report::{Report, count, number};
use crate::shape::Shape;
use crate::sustained::sustained;
use crate::world::{Backend, World};

/// After the start, until it is idle.
const SETTLE_IN: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(10);

pub async fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let world = World::build(bench, Backend::Servers).await?;
    Shape::USUAL.move_in(&world).await?;
    let (idle, share) = idle(&world).await?;
    let (sample, _) = sustained(&world, Shape::USUAL, bench.window, 0).await?;
    world.demolish(bench).await?;
    let backlog = bench.backlog.get_or_try_init(|| backlog::measure(bench)).await?;
    let cells = |what: &str, memory: Memory| {
        vec![what.to_owned(), number(memory.resident_mb), number(memory.peak_mb)]
    };
    let rows = [
        cells(&format!("idle, with {:.1}% of a core", share * 100.0), idle),
        cells("under full load", sample.memory),
        cells(
            &format!("under full load, with {} rows that wait", count(backlog.rows)),
            backlog.sample.memory,
        ),
    ];
    let kept = json!({ "idle": idle, "idle_cpu_share": share, "load": sample.memory,
        "backlog": backlog.sample.memory });
    report.add("memory", "MEMORY: of the engine", &["resident", "MB", "MB at most"], &rows, kept);
    Ok(())
}

/// The idle memory, with the share of a core that is used.
async fn idle(world: &World) -> Result<(Memory, f64)> {
    let engine = world.start().await?;
    tokio::time::sleep(SETTLE_IN).await;
    let before = CpuTime::now(engine.pid)?.engine;
    tokio::time::sleep(IDLE).await;
    let spent = CpuTime::now(engine.pid)?.engine.saturating_sub(before);
    let memory = memory(engine.pid)?;
    engine.stop().await?;
    Ok((memory, spent.as_secs_f64() / IDLE.as_secs_f64()))
}
