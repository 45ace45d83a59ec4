//! One event with very many recipients: how fast its rows are written, how much memory that takes, and how long other
//! events wait meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::bench::Bench;
use crate::copy;
use crate::limit;
use crate::probe::{Latency, Priority, Probes};
use crate::process::{forget_peak, memory};
use crate::report::{Report, count, number, per_second, percent};
use crate::shape::Shape;
use crate::sustained::{WARM_UP, median};
use crate::world::{Backend, World};

const SIZES: [usize; 4] = [1, 100, 10_000, 1_000_000];
/// The recipients of the event with which the stage is measured alone.
const ALONE: usize = 1_000_000;
/// The longest time for one event.
const STATUS_TIMEOUT: Duration = Duration::from_mins(10);

pub async fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let (mut limits, mut alone) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        limits.push(limit::inserts(bench).await?);
        let world = World::build(bench, Backend::Servers).await?;
        alone.push(stage_alone(&world).await?);
        world.demolish(bench).await?;
        eprintln!(
            "  the stage alone, run {run} of {}: {}/s, inserts {}/s",
            bench.runs,
            per_second(alone[run - 1]),
            per_second(limits[run - 1])
        );
    }
    let mut world = World::build(bench, Backend::Servers).await?;
    Box::pin(all_sizes(bench, &mut world, &Alone { limits, rates: alone }, report)).await?;
    world.demolish(bench).await
}

/// Rows per second of the stage alone and of inserts alone, measured alternately.
struct Alone {
    rates: Vec<f64>,
    limits: Vec<f64>,
}

impl Alone {
    fn limit(&self) -> f64 {
        median(self.limits.clone())
    }

    fn rate(&self) -> f64 {
        median(self.rates.clone())
    }

    fn share(&self) -> f64 {
        median(self.rates.iter().zip(&self.limits).map(|(rate, limit)| rate / limit).collect())
    }
}

async fn move_in(world: &World, sizes: &[usize]) -> Result<()> {
    Shape::USUAL.write_rules(world, &["EMAIL"]).await?;
    for size in sizes {
        copy::members(world, *size).await?;
    }
    world.database.run("VACUUM ANALYZE recipient").await
}

async fn all_sizes(bench: &Bench, world: &mut World, alone: &Alone, report: &mut Report) -> Result<()> {
    let limit = alone.limit();
    move_in(world, &SIZES).await?;
    let probes = Probes::install(world).await?;
    let engine = world.start().await?;
    // The first probes would include the time for creating connections and queues.
    probes.run(world, Priority::Normal, tokio::time::sleep(WARM_UP)).await?;
    let mut quiet = Vec::new();
    for priority in [Priority::Normal, Priority::High] {
        quiet.push(probes.run(world, priority, tokio::time::sleep(bench.window / 4)).await?);
    }
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for size in SIZES {
        forget_peak(engine.pid)?;
        let told = tokio::join!(
            one_event(world, size, "broadcast", "PUBLISHED"),
            probes.run(world, Priority::Normal, fanned_out(world, size)),
            probes.run(world, Priority::High, fanned_out(world, size)),
        );
        let (seconds, normal, high) = (told.0?, told.1?, told.2?);
        let peak = memory(engine.pid)?.peak_mb;
        await_status(world, &format!("broadcast-{size}"), "PROCESSED").await?;
        #[expect(clippy::cast_precision_loss, reason = "far below that")]
        let rate = size as f64 / seconds;
        rows.push(vec![
            count(size),
            per_second(rate),
            percent(rate / limit),
            number(peak),
            waited(&normal, &quiet[0]),
            waited(&high, &quiet[1]),
        ]);
        kept.push(json!({
            "recipients": size, "seconds": seconds, "rate": rate, "share_of_inserts": rate / limit, "peak_mb": peak,
            "others": normal, "high": high,
        }));
    }
    engine.stop().await?;
    rows.push(vec![
        format!("{}, the stage alone", count(ALONE)),
        per_second(alone.rate()),
        percent(alone.share()),
    ]);
    let columns = [
        "recipients of one event",
        "rows per second",
        "of the limit",
        "peak MB",
        "others: p50 / p99 / max ms",
        "HIGH: p50 / p99 / max ms",
    ];
    rows.push(vec![
        "no large event".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        three(&quiet[0]),
        three(&quiet[1]),
    ]);
    let title = "FAN-OUT: one event with many recipients, under concurrent load";
    let kept = json!({ "limits": alone.limits, "sizes": kept, "stage_alone": alone.rates,
        "stage_alone_share": alone.share(), "quiet": { "others": quiet[0], "high": quiet[1] } });
    report.add("fan_out", title, &columns, &rows, kept);
    Report::remark(&format!(
        "The limit is inserts of 1000 rows on one connection with nothing else running: {}/s.",
        per_second(limit)
    ));
    Ok(())
}

/// Rows per second of the fan-out alone. The other stages do not run, and the tables are empty, as for the limit.
async fn stage_alone(world: &World) -> Result<f64> {
    move_in(world, &[ALONE]).await?;
    world.database.run("CHECKPOINT").await?;
    let engine = world.start_roles("api,fan_out").await?;
    let seconds = one_event(world, ALONE, "alone", "PUBLISHED").await?;
    engine.stop().await?;
    #[expect(clippy::cast_precision_loss, reason = "far below that")]
    let rate = ALONE as f64 / seconds;
    Ok(rate)
}

fn three(latency: &Latency) -> String {
    format!("{:.0} / {:.0} / {:.0}", latency.p50_ms, latency.p99_ms, latency.max_ms)
}

/// The latency of probes beside an event, or a dash if too few fit into its time.
fn waited(latency: &Latency, quiet: &Latency) -> String {
    if latency.probes * 20 < quiet.probes { "–".to_owned() } else { three(latency) }
}

/// Writes an event, and returns the time until its last row was written, by the database's clock.
async fn one_event(world: &World, size: usize, name: &str, status: &str) -> Result<f64> {
    let client = world.database.client().await?;
    let sql = format!(
        "SELECT emit('{name}-{size}', 'ORDER_CREATED', 'RESTAURANT', 'members-{size}',
                '{{\"number\": {size}, \"guest\": \"Giulia Rossi\", \"dishes\": 4, \"at\": \"19:30\"}}')"
    );
    client.batch_execute(&sql).await?;
    await_status(world, &format!("{name}-{size}"), status).await?;
    let took = format!(
        "SELECT extract(epoch FROM published_at - created_at) FROM event_outbox WHERE event_id = '{name}-{size}'"
    );
    world.database.number(&took).await
}

async fn await_status(world: &World, event_id: &str, status: &str) -> Result<()> {
    let reached = format!(
        "SELECT count(*) FROM event_outbox WHERE event_id = '{event_id}' AND status IN ('{status}', 'PROCESSED')"
    );
    let client = world.database.client().await?;
    let begun = Instant::now();
    while client.query_one(&reached, &[]).await?.get::<_, i64>(0) == 0 {
        (begun.elapsed() < STATUS_TIMEOUT)
            .then_some(())
            .with_context(|| format!("the event {event_id} is not {status} within {STATUS_TIMEOUT:?}"))?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn fanned_out(world: &World, size: usize) {
    // An error is also returned to the caller that measures the event's time.
    await_status(world, &format!("broadcast-{size}"), "PUBLISHED").await.ok();
}
