//! The whole pipeline and the limits of the machine, measured alternately: on a machine with other work, only results
//! from the same time can be compared.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::bench::Bench;
use crate::limit::{self, Rate};
use crate::report::{Report, number, per_second, percent};
use crate::shape::Shape;
use crate::sustained::{Sample, median, median_of, sustained, with_producers};
use crate::world::{Backend, World};

/// Returns the median rate of the usual shape with servers, if it was measured.
pub async fn measure(
    bench: &Bench,
    report: &mut Report,
    backends: &[Backend],
    shapes: &[Shape],
) -> Result<Option<Rate>> {
    let (mut rows, mut kept, mut usual) = (Vec::new(), Vec::new(), None);
    ensure!(
        bench.producers == 0 || !backends.contains(&Backend::Embedded),
        "producers write to PostgreSQL: give --backend servers or mixed with --producers"
    );
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
            rows.push(row(bench, (backend, shape), &samples, limit, share));
            kept.push(json!({
                "backend": backend, "shape": shape, "producers": bench.producers, "rate": rate, "limit": limit,
                "share": share,
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
        "The limit is one connection's cycle of five statements in batches of 1000, measured before each run; \
         µs are those of one core.",
    );
    Ok(usual)
}

/// The rate of a single run, for parts that need a share of it.
pub async fn usual_rate(bench: &Bench) -> Result<Rate> {
    one_run(bench, Backend::Servers, Shape::USUAL).await.map(|sample| sample.rate)
}

async fn one_run(bench: &Bench, backend: Backend, shape: Shape) -> Result<Sample> {
    let world = World::build(bench, backend).await?;
    shape.move_in(&world).await?;
    let sample = if bench.producers > 0 {
        with_producers(&world, shape, bench.window, bench.producers).await?
    } else {
        sustained(&world, shape, bench.window, 0).await?.0
    };
    world.demolish(bench).await?;
    Ok(sample)
}

async fn limit_of(bench: &Bench, backend: Backend) -> Result<Rate> {
    match backend {
        Backend::Servers | Backend::Mixed => limit::cycle(bench, 1).await,
        Backend::Embedded => limit::sqlite_cycle().await,
    }
}

fn row(
    bench: &Bench,
    (backend, shape): (Backend, Shape),
    samples: &[Sample],
    limit: Rate,
    of_limit: f64,
) -> Vec<String> {
    let middle = |of: fn(&Sample) -> f64| median_of(samples, of);
    let on_servers = |text: String| if backend == Backend::Embedded { "–".to_owned() } else { text };
    let rate = middle(|sample| sample.rate);
    vec![
        match bench.producers {
            0 => format!("{}, {shape}", backend.name()),
            producers => format!("{}, {shape}, {producers} producers", backend.name()),
        },
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
    let [mut one, mut two, mut lean, mut inserts, mut broker, mut sqlite] = [const { Vec::new() }; 6];
    for _ in 0..bench.runs {
        one.push(limit::cycle(bench, 1).await?);
        two.push(limit::cycle(bench, 2).await?);
        lean.push(limit::lean_cycle(bench).await?);
        inserts.push(limit::inserts(bench).await?);
        broker.push(limit::broker(bench).await?);
        sqlite.push(limit::sqlite_cycle().await?);
    }
    let limits = [
        ("PostgreSQL, the cycle, one connection", "postgres_cycle", one),
        ("PostgreSQL, the cycle, two connections", "postgres_cycle_two", two),
        (
            "PostgreSQL, what of it the engine asks: three inserts and an update in place",
            "postgres_lean_cycle",
            lean,
        ),
        ("PostgreSQL, inserts into the outbox alone", "postgres_inserts", inserts),
        ("RabbitMQ alone, published and received", "rabbitmq", broker),
        ("SQLite, the cycle", "sqlite_cycle", sqlite),
    ];
    let rows: Vec<_> = limits
        .iter()
        .map(|(name, _, rates)| vec![(*name).to_owned(), per_second(median(rates.clone()))])
        .collect();
    let kept = limits.iter().map(|(_, key, rates)| ((*key).to_owned(), json!(rates))).collect();
    let title = format!("LIMITS: maximum rates of this machine, medians of {} runs", bench.runs);
    report.add("limit", &title, &["measured alone", "per second"], &rows, serde_json::Value::Object(kept));
    Ok(())
}
