//! Events per second over HTTP: `POST /v1/events` with arrays, over several connections. Each answer means that its
//! events are committed. Measured with a whole engine, which processes the events meanwhile, and with the API alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::report::{Report, number, per_second};
use crate::shape::Shape;
use crate::sustained::WARM_UP;
use crate::world::{Backend, World};

const CONNECTIONS: usize = 50;
const EVENTS_PER_REQUEST: usize = 100;
const KEY: &str = "benchmark-admin-key-of-at-least-32-bytes";

pub async fn measure(bench: &Bench, report: &mut Report, backends: &[Backend]) -> Result<()> {
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for &backend in backends.iter().filter(|backend| **backend != Backend::Mixed) {
        // On SQLite one process has all roles.
        let roles: &[Option<&str>] = if backend == Backend::Servers { &[None, Some("api")] } else { &[None] };
        for &roles in roles {
            let sample = accepted(bench, backend, roles).await?;
            let what = if roles.is_some() { "the API alone" } else { "the whole engine" };
            rows.push(vec![
                backend.name().to_owned(),
                what.to_owned(),
                per_second(sample.rate),
                number(sample.p50_ms),
                number(sample.p99_ms),
            ]);
            kept.push(json!({
                "backend": backend, "roles": roles.unwrap_or("all"), "events_per_second": sample.rate,
                "p50_ms": sample.p50_ms, "p99_ms": sample.p99_ms,
            }));
        }
    }
    let title =
        format!("HTTP: POST /v1/events, arrays of {EVENTS_PER_REQUEST} over {CONNECTIONS} connections");
    let columns = ["back end", "served by", "events/s", "p50 ms", "p99 ms"];
    report.add("http", &title, &columns, &rows, json!(kept));
    Ok(())
}

struct Sample {
    /// Events per second.
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

async fn accepted(bench: &Bench, backend: Backend, roles: Option<&str>) -> Result<Sample> {
    let shape = Shape::new(1, 1);
    let mut world = World::build(bench, backend).await?;
    world.set("CAMPANILE_AUTH__ADMIN_KEY", KEY);
    shape.move_in(&world).await?;
    let engine = match roles {
        Some(roles) => world.start_roles(roles).await?,
        None => world.start().await?,
    };
    let url = format!("{}/v1/events", engine.meter().url());
    let begin = Instant::now() + WARM_UP;
    let end = begin + bench.window;
    let numbers = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        clients.spawn(client(url.clone(), shape, Arc::clone(&numbers), begin, end));
    }
    let mut answers: Vec<Duration> = Vec::new();
    while let Some(client) = clients.join_next().await {
        answers.extend(client??);
    }
    engine.stop().await?;
    world.demolish(bench).await?;
    ensure!(!answers.is_empty(), "no request was answered within the window");
    answers.sort_unstable();
    let at = |percent: usize| answers[(answers.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    #[expect(clippy::cast_precision_loss, reason = "a count of events")]
    let events = (answers.len() * EVENTS_PER_REQUEST) as f64;
    Ok(Sample { rate: events / bench.window.as_secs_f64(), p50_ms: at(50), p99_ms: at(99) })
}

/// Posts until `end`. Returns how long the requests took that were answered from `begin` on.
async fn client(
    url: String,
    shape: Shape,
    numbers: Arc<AtomicUsize>,
    begin: Instant,
    end: Instant,
) -> Result<Vec<Duration>> {
    let http = reqwest::Client::builder().pool_max_idle_per_host(1).build()?;
    let mut answers = Vec::new();
    while Instant::now() < end {
        let first = numbers.fetch_add(EVENTS_PER_REQUEST, Ordering::Relaxed);
        let events: Vec<Value> =
            (first..first + EVENTS_PER_REQUEST).map(|number| shape.event(number)).collect();
        let asked = Instant::now();
        let answer =
            http.post(&url).bearer_auth(KEY).json(&events).send().await.context("cannot post events")?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.as_u16() == 202, "POST /v1/events answered {status}: {text}");
        let answered = Instant::now();
        if (begin..end).contains(&answered) {
            answers.push(answered - asked);
        }
    }
    Ok(answers)
}
