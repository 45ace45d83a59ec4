//! The whole way, and what the same machine can do at most, in turns: on a machine that has other things to do as well, only what was
//! measured side by side can be compared.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::bench::Bench;
use crate::limit::{self, Rate};
use crate::report::{Report, number, per_second, percent};
use crate::shape::Shape;
use crate::sustained::{Sample, median, median_of, sustained};
use crate::world::{Backend, World};

/// How long a limit is measured, beside each run.
const LIMIT_WINDOW: Duration = Duration::from_secs(8);

/// Answers the median rate of the usual shape with servers, if it was measured.
pub async fn measure(
    bench: &Bench,
    report: &mut Report,
    backends: &[Backend],
    shapes: &[Shape],
) -> Result<Option<Rate>> {
    let (mut rows, mut kept, mut usual) = (Vec::new(), Vec::new(), None);
    for &backend in backends {
        for &shape in shapes {
            let (mut samples, mut limits) = (Vec::new(), Vec::new());
            for run in 1..=bench.runs {
                limits.push(limit_of(bench, backend).await?);
                samples.push(one_run(bench, backend, shape).await?);
                eprintln!(
                    "  {}, {shape}, run {run} of {}: {}/s, limit {}/s",
                    backend.name(),
                    bench.runs,
                    per_second(samples[samples.len() - 1].rate),
                    per_second(limits[limits.len() - 1])
                );
            }
            let rate = median_of(&samples, |sample| sample.rate);
            let limit = median(limits.clone());
            let share =
                median(samples.iter().zip(&limits).map(|(sample, limit)| sample.rate / limit).collect());
            if backend == Backend::Servers && shape == Shape::USUAL {
                usual = Some(rate);
            }
            rows.push(row(backend, shape, &samples, limit, share));
            kept.push(json!({
                "backend": backend, "shape": shape, "rate": rate, "limit": limit, "share": share,
                "a_day": rate * 86_400.0, "samples": samples, "limits": limits,
            }));
        }
    }
    let columns = [
        "from committed event to settled send",
        "per second",
        "a day",
        "of the limit",
        "µs engine",
        "µs PostgreSQL",
        "µs RabbitMQ",
        "WAL bytes",
        "MB",
    ];
    let title = format!(
        "PIPELINE: notifications, {} s after warm-up, medians of {} runs",
        bench.window.as_secs(),
        bench.runs
    );
    report.add("pipeline", &title, &columns, &rows, json!(kept));
    Report::remark(
        "The limit is one connection's cycle of five statements in batches of 1000, measured before each run; µs are those of one core.",
    );
    Ok(usual)
}

/// For those who want a share of it, and have no time for several runs.
pub async fn usual_rate(bench: &Bench) -> Result<Rate> {
    one_run(bench, Backend::Servers, Shape::USUAL).await.map(|sample| sample.rate)
}

async fn one_run(bench: &Bench, backend: Backend, shape: Shape) -> Result<Sample> {
    let world = World::build(bench, backend).await?;
    shape.move_in(&world).await?;
    let (sample, _) = sustained(&world, shape, bench.window, 0).await?;
    world.demolish(bench).await?;
    Ok(sample)
}

async fn limit_of(bench: &Bench, backend: Backend) -> Result<Rate> {
    match backend {
        Backend::Servers | Backend::Mixed => limit::cycle(&bench.servers.database_url, 1, LIMIT_WINDOW).await,
        Backend::Embedded => limit::sqlite_cycle(LIMIT_WINDOW).await,
    }
}

fn row(backend: Backend, shape: Shape, samples: &[Sample], limit: Rate, of_limit: f64) -> Vec<String> {
    let middle = |of: fn(&Sample) -> f64| median_of(samples, of);
    let on_servers = |text: String| if backend == Backend::Embedded { "–".to_owned() } else { text };
    let rate = middle(|sample| sample.rate);
    vec![
        format!("{}, {shape}", backend.name()),
        per_second(rate),
        format!("{:.2} bn", rate * 86_400.0 / 1e9),
        format!("{} of {}", percent(of_limit), per_second(limit)),
        number(middle(|sample| sample.cpu.engine)),
        on_servers(number(middle(|sample| sample.cpu.database))),
        if backend == Backend::Servers {
            number(middle(|sample| sample.cpu.broker))
        } else {
            "–".to_owned()
        },
        on_servers(number(middle(|sample| sample.wal_bytes.unwrap_or_default()))),
        number(middle(|sample| sample.memory.peak_mb)),
    ]
}

/// The limits alone.
pub async fn limits(bench: &Bench, report: &mut Report) -> Result<()> {
    let database = &bench.servers.database_url;
    let (mut one, mut two, mut inserts, mut broker, mut sqlite) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..bench.runs {
        one.push(limit::cycle(database, 1, LIMIT_WINDOW).await?);
        two.push(limit::cycle(database, 2, LIMIT_WINDOW).await?);
        inserts.push(limit::inserts(database, LIMIT_WINDOW).await?);
        broker.push(limit::broker(&bench.servers.broker_url, LIMIT_WINDOW).await?);
        sqlite.push(limit::sqlite_cycle(LIMIT_WINDOW).await?);
    }
    let limits = [
        ("PostgreSQL, the cycle, one connection", "postgres_cycle", one),
        ("PostgreSQL, the cycle, two connections", "postgres_cycle_two", two),
        ("PostgreSQL, inserts into the outbox alone", "postgres_inserts", inserts),
        ("RabbitMQ alone, published and received", "rabbitmq", broker),
        ("SQLite, the cycle", "sqlite_cycle", sqlite),
    ];
    let rows: Vec<_> = limits
        .iter()
        .map(|(name, _, rates)| vec![(*name).to_owned(), per_second(median(rates.clone()))])
        .collect();
    let kept = limits.iter().map(|(_, key, rates)| ((*key).to_owned(), json!(rates))).collect();
    let title = format!("LIMITS: what this machine can do at most, medians of {} runs", bench.runs);
    report.add(
        "limit",
        &title,
        &["with nothing else beside it", "per second"],
        &rows,
        serde_json::Value::Object(kept),
    );
    Ok(())
}
