//! Where the time goes: the stages of the engine, the statements of the database, and the round trips between them. The
//! top entries are worth improving next.

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;

use crate::bench::Bench;
use crate::engine::Engine;
use crate::process::CpuTime;
use crate::report::{Report, number};
use crate::round_trips::RoundTrips;
use crate::shape::Shape;
use crate::sustained::{plenty, window_of};
use crate::world::{Backend, World};

const SHOWN: usize = 16;
const CPU: &str = "campanile_stage_cpu_microseconds_total";

#[derive(Debug, Clone, Serialize)]
struct Statement {
    what: String,
    calls: f64,
    us: f64,
    rows: f64,
    /// Without full-page images, which depend on the last checkpoint.
    wal_bytes: f64,
}

pub async fn measure(bench: &Bench, report: &mut Report, shape: Shape) -> Result<()> {
    let mut world = World::build(bench, Backend::Servers).await?;
    of_one_run(bench, &mut world, report, shape).await?;
    world.demolish(bench).await
}

async fn of_one_run(bench: &Bench, world: &mut World, report: &mut Report, shape: Shape) -> Result<()> {
    shape.move_in(world).await?;
    shape.order(world, 0, plenty(world.backend, shape, bench.window)).await?;
    let round_trips = RoundTrips::between(&world.database.url()).await?;
    world.set("CAMPANILE_DATABASE__URL", round_trips.url());
    let counts = forget_statements(world).await.is_ok();
    let engine = world.start().await?;
    let (sent, stages, cpu) = (engine.sent().await?, stages(&engine).await?, CpuTime::now(engine.pid)?);
    let trips = round_trips.count();
    // Starts with the first statement, so that everything that is counted is also divided.
    window_of(world, &engine, bench.window).await?;
    let notifications = engine.sent().await? - sent;
    #[expect(clippy::cast_precision_loss, reason = "far below that")]
    let trips = (round_trips.count() - trips) as f64 / notifications * 1_000.0;
    let mut stages = difference(&stages, &self::stages(&engine).await?, notifications);
    let whole = CpuTime::now(engine.pid)?.since(cpu, notifications).engine;
    let elsewhere = whole - stages.iter().map(|(_, us)| us).sum::<f64>();
    stages.push(("everything else: connections, the runtime".to_owned(), elsewhere));
    let statements = if counts { statements(world, notifications).await? } else { Vec::new() };
    engine.stop().await?;

    let rows: Vec<_> = stages
        .iter()
        .filter(|(_, us)| *us >= 0.05)
        .map(|(stage, us)| vec![stage.clone(), number(*us)])
        .collect();
    let title = "STEPS: CPU time of the engine by stage";
    let columns = [&format!("{shape} on PostgreSQL + RabbitMQ"), "µs of a core each"];
    report.add("stages", title, &columns, &rows, json!(stages));
    let cells = |s: &Statement| {
        vec![s.what.clone(), number(s.calls), number(s.rows), number(s.us), number(s.wal_bytes)]
    };
    let rows: Vec<_> = statements.iter().take(SHOWN).map(cells).collect();
    let columns = ["statement", "per 1000", "rows per 1000", "µs each notification", "WAL bytes each"];
    let total: f64 = statements.iter().map(|statement| statement.calls).sum();
    let kept =
        json!({ "round_trips_per_1000": trips, "statements_per_1000": total, "statements": statements });
    report.add("statements", "STEPS: database statements", &columns, &rows, kept);
    let statements = if counts { format!("{total:.1} statements and ") } else { String::new() };
    Report::remark(&format!("{statements}{trips:.1} round trips to the database per 1000 notifications."));
    if !counts {
        Report::remark(
            "This PostgreSQL has no pg_stat_statements (shared_preload_libraries), so its statements are not known.",
        );
    }
    Ok(())
}

/// CPU time by stage, in microseconds.
async fn stages(engine: &Engine) -> Result<Vec<(String, f64)>> {
    let text = engine.meter().all().await?;
    let of_stages = text.lines().filter(|line| line.starts_with(CPU)).filter_map(|line| {
        let stage = line.split_once("stage=\"")?.1.split_once('"')?.0.to_owned();
        Some((stage, line.rsplit(' ').next()?.parse().ok()?))
    });
    Ok(of_stages.collect())
}

fn difference(before: &[(String, f64)], after: &[(String, f64)], notifications: f64) -> Vec<(String, f64)> {
    let earlier =
        |stage: &String| before.iter().find(|(name, _)| name == stage).map_or(0.0, |(_, micros)| *micros);
    let mut each: Vec<(String, f64)> = after
        .iter()
        .map(|(stage, micros)| (stage.clone(), (micros - earlier(stage)) / notifications))
        .collect();
    each.sort_by(|a, b| b.1.total_cmp(&a.1));
    each
}

/// Forgets the statements from before the engine's start.
async fn forget_statements(world: &World) -> Result<()> {
    let ours = "SELECT oid FROM pg_database WHERE datname = current_database()";
    world.database.run(&format!("SELECT pg_stat_statements_reset(0, ({ours}), 0)")).await
}

/// The statements, by cost. Each of Campanile's opens with a comment that names it.
async fn statements(world: &World, notifications: f64) -> Result<Vec<Statement>> {
    let client = world.database.client().await?;
    let sql = "SELECT query, calls::float8, total_exec_time::float8, rows::float8,
                      greatest(wal_bytes - wal_fpi * 8192, 0)::float8
               FROM pg_stat_statements
               WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND query NOT LIKE '%pg_stat_statements%'
               ORDER BY total_exec_time DESC";
    let rows = client.query(sql, &[]).await.context("pg_stat_statements can't be read")?;
    let statement = |row: &tokio_postgres::Row| {
        let per = |column: usize, each: f64| row.get::<_, f64>(column) * each / notifications;
        Statement {
            what: summary(row.get(0)),
            calls: per(1, 1_000.0),
            us: per(2, 1_000.0),
            rows: per(3, 1_000.0),
            wal_bytes: per(4, 1.0),
        }
    };
    Ok(rows.iter().map(statement).collect())
}

fn summary(query: &str) -> String {
    const MAX_CHARS: usize = 60;
    let first = query
        .lines()
        .map(|line| line.trim_start_matches("--").trim())
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    first.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::servers::Servers;

    const SENDS_TIMEOUT: Duration = Duration::from_mins(2);

    /// The binary from the same build.
    fn binary() -> PathBuf {
        let ours = std::env::current_exe().expect("a test has a program");
        let built = ours.parent().and_then(|deps| deps.parent()).map(|folder| folder.join("campanile"));
        built
            .filter(|file| file.exists())
            .expect("the server is built: run `cargo xtask test`, or `cargo build` before")
    }

    async fn bench() -> Bench {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url =
            |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set: run `cargo xtask test`"));
        let urls = (url("CAMPANILE_TEST_DATABASE_URL"), url("CAMPANILE_TEST_BROKER_URL"));
        let servers = Servers::find(Some(urls.0), Some(urls.1)).await.expect("they are named");
        Bench::new(servers, binary(), Duration::ZERO)
    }

    /// Statements and round trips per thousand notifications, and bytes of WAL per notification.
    async fn cost(shape: Shape, events: usize) -> (f64, f64, f64) {
        let bench = bench().await;
        let mut world = World::build(&bench, Backend::Servers).await.expect("the servers are there");
        shape.move_in(&world).await.expect("the database is there");
        shape.order(&world, 0, events).await.expect("the database is there");
        let round_trips = RoundTrips::between(&world.database.url()).await.expect("a port is free");
        world.set("CAMPANILE_DATABASE__URL", round_trips.url());
        let counts = forget_statements(&world).await;
        counts.expect("PostgreSQL has pg_stat_statements in shared_preload_libraries");
        let engine = world.start().await.expect("the server starts");
        let count = |count: usize| f64::from(u32::try_from(count).expect("a small number"));
        let (all, begun) = (count(events * shape.notifications()), Instant::now());
        while engine.sent().await.expect("it answers") < all {
            assert!(begun.elapsed() < SENDS_TIMEOUT, "not all were sent within {SENDS_TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let trips = count(round_trips.count()) * 1_000.0 / all;
        let statements = statements(&world, all).await.expect("it can be asked");
        engine.stop().await.expect("it stops");
        world.demolish(&bench).await.expect("it can be removed");
        let (calls, bytes) =
            statements.iter().fold((0.0, 0.0), |(calls, bytes), s| (calls + s.calls, bytes + s.wal_bytes));
        (calls, trips, bytes)
    }

    /// These are counts, not timings. Batches that fall apart, a statement per row, or an update that is no longer HOT
    /// show on any machine. The bounds are less than twice the values of a quiet one.
    #[tokio::test]
    async fn what_a_notification_costs_the_database_has_a_bound() {
        for (shape, events, most) in
            [(Shape::USUAL, 600, (250.0, 200.0, 2_200.0)), (Shape::new(1, 1), 3_000, (500.0, 350.0, 5_000.0))]
        {
            let (statements, trips, bytes) = cost(shape, events).await;
            println!(
                "{shape}: {statements:.0} statements, {trips:.0} round trips per 1000, {bytes:.0} bytes of WAL each"
            );
            assert!(
                statements <= most.0,
                "{shape}: {statements:.0} statements per 1000, and {} are allowed",
                most.0
            );
            assert!(trips <= most.1, "{shape}: {trips:.0} round trips per 1000, and {} are allowed", most.1);
            assert!(bytes <= most.2, "{shape}: {bytes:.0} bytes of WAL each, and {} are allowed", most.2);
        }
    }
}
