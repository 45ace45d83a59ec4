//! Whether the speed is kept with a large history, with a long-running reader that keeps PostgreSQL from vacuuming, and
//! with a large backlog.

use anyhow::Result;
use serde_json::json;
use tokio_postgres::Client;

use crate::bench::Bench;
use crate::probe::Latency;
use crate::report::{Report, count, per_second, percent};
use crate::shape::Shape;
use crate::sustained::{Sample, median_of, sustained};
use crate::world::{Backend, World};
use crate::{backlog, copy, latency};

/// The part of the greatest rate during the measurement of latencies.
const SHARE: f64 = 0.1;

struct Past {
    what: String,
    rows: usize,
    /// A transaction that stays open.
    reader: Option<Client>,
    world: World,
    samples: Vec<Sample>,
    /// The number of the next event.
    next: usize,
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let sizes: &[usize] = if bench.large { &[0, 1_000_000, 10_000_000] } else { &[0, 1_000_000] };
    let mut pasts = Vec::new();
    for &rows in sizes {
        pasts.push(Past::new(bench, format!("{} rows of history", count(rows)), rows).await?);
    }
    let mut read = Past::new(bench, "a transaction that stays open".to_owned(), 0).await?;
    read.reader = Some(reader(&read.world).await?);
    pasts.push(read);
    for run in 1..=bench.runs {
        for past in &mut pasts {
            // The events of the run before are history, too.
            if run > 1 && past.rows == 0 && past.reader.is_none() {
                past.begin_anew(bench).await?;
            }
            let (sample, next) = sustained(&past.world, Shape::USUAL, bench.window, past.next).await?;
            eprintln!("  {}, run {run}: {}/s", past.what, per_second(sample.rate));
            past.samples.push(sample);
            past.next = next;
        }
    }
    let empty = median_of(&pasts[0].samples, |sample| sample.rate);
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    for mut past in pasts {
        let rate = median_of(&past.samples, |sample| sample.rate);
        let (latency, _) = latency::with_load(&mut past.world, empty * SHARE, bench.window).await?;
        rows.push(row(past.what, rate, empty, &latency));
        kept.push(json!({ "history": past.rows, "reader": past.reader.is_some(), "rate": rate,
            "of_empty": rate / empty, "latency": latency, "samples": past.samples }));
        past.world.demolish(bench).await?;
    }
    let backlog = bench.backlog.get_or_try_init(|| backlog::measure(bench)).await?;
    let what = format!("{} rows that wait, fanned out before; latency of HIGH", count(backlog.rows));
    // Its rate has no fan-out and cannot be compared.
    let cells = [vec![what, per_second(backlog.sample.rate), "–".to_owned()], backlog.high.cells().to_vec()];
    rows.push(cells.concat());
    let columns =
        [vec!["3 × 3 on PostgreSQL + RabbitMQ with", "per second", "of empty"], Latency::columns().to_vec()]
            .concat();
    let title = "GROWTH: maximum rate, and latency at 10% of it";
    report.add("growth", title, &columns, &rows, json!({ "history": kept, "backlog": backlog }));
    Ok(())
}

impl Past {
    async fn new(bench: &Bench, what: String, rows: usize) -> Result<Self> {
        eprintln!("  making {what}");
        let world = World::build(bench, Backend::Servers).await?;
        Shape::USUAL.move_in(&world).await?;
        if rows > 0 {
            copy::history(&world, rows).await?;
        }
        Ok(Past { what, rows, reader: None, world, samples: Vec::new(), next: 0 })
    }

    async fn begin_anew(&mut self, bench: &Bench) -> Result<()> {
        let world = World::build(bench, Backend::Servers).await?;
        Shape::USUAL.move_in(&world).await?;
        std::mem::replace(&mut self.world, world).demolish(bench).await?;
        self.next = 0;
        Ok(())
    }
}

/// A long reader, such as a backup or a forgotten report.
async fn reader(world: &World) -> Result<Client> {
    let client = world.database.client().await?;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM campanile.recipient")
        .await?;
    Ok(client)
}

fn row(what: String, rate: f64, empty: f64, latency: &Latency) -> Vec<String> {
    [vec![what, per_second(rate), percent(rate / empty)], latency.cells().to_vec()].concat()
}
