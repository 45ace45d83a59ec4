//! `campanile-bench`: Campanile's throughput, latency and cost, next to the limits of the same machine.
//!
//! The engine runs as users run it: a process of the release build with its default configuration. Databases and queues
//! are created for the run and removed after it. `docs/guides/benchmark.md` says what is measured and how.

mod backlog;
mod bench;
mod copy;
mod database;
mod delay;
mod email;
mod engine;
mod fan_out;
mod growth;
mod http;
mod latency;
mod limit;
mod memory;
mod pipeline;
mod probe;
mod process;
mod provider;
mod report;
mod round_trips;
mod servers;
mod shape;
mod site;
mod steps;
mod sustained;
mod tool;
mod world;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Parser, ValueEnum};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use bench::Bench;
use report::Report;
use servers::Servers;
use shape::Shape;
use world::Backend;

/// Measures Campanile on this machine, beside what the machine can do at most.
#[derive(Debug, Parser)]
#[command(name = "campanile-bench")]
struct Options {
    /// What to measure [default: all of it]
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// On which back ends the pipeline is measured [default: all]
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// Recipients x channels of an event in the pipeline [default: 1x1, 3x3 and 100x2]; the first is that of the steps,
    /// too [default: 3x3]
    #[arg(long, value_name = "RxC")]
    shape: Vec<Shape>,
    /// SMTP connections for the e-mail benchmark [default: 1, 10 and 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    connections: Vec<u16>,
    /// Measurement window in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
    /// Number of runs; results are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=20))]
    runs: u64,
    /// Also with 10 million rows of history
    #[arg(long)]
    large: bool,
    /// Output file for JSON [default: standard output, after the tables]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// PostgreSQL URL; the benchmark creates and drops databases there [default: starts its own]
    #[arg(long, value_name = "URL", env = "CAMPANILE_TEST_DATABASE_URL")]
    database_url: Option<String>,
    /// RabbitMQ URL; the benchmark creates and deletes queues there [default: starts its own]
    #[arg(long, value_name = "URL", env = "CAMPANILE_TEST_BROKER_URL")]
    broker_url: Option<String>,
    /// A setting of the engine, such as `CAMPANILE_RECEIVE__WORKERS=2`; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Concurrent producers during the pipeline benchmark, one transaction per event
    /// [default: none, all events are inserted before]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(0..=64))]
    producers: u16,
    /// The program to measure [default: the one of this checkout, which is built]
    #[arg(long, value_name = "FILE")]
    campanile: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Notifications per second, from committed event to settled send, beside the limit.
    Pipeline,
    /// What this machine can do at most.
    Limit,
    /// From commit to the channel, at 1%, 10% and 50% of the greatest rate.
    Latency,
    /// Rate and latency with a large history and with a large backlog.
    Growth,
    /// One event with many recipients.
    #[value(name = "fan_out")]
    FanOut,
    /// Resident memory, idle and under load.
    Memory,
    /// E-mails per second over SMTP, compared with smtp-source.
    Email,
    /// Events per second over HTTP.
    Http,
    /// CPU time by stage, statements and round trips.
    Steps,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if name.starts_with("CAMPANILE_") => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected CAMPANILE_SECTION__KEY=VALUE".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // Another library may bring a second provider, so one is chosen explicitly.
    rustls::crypto::ring::default_provider().install_default().ok();
    match Box::pin(run(Options::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("campanile-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let binary = match options.campanile {
        Some(file) => file,
        None => tool::build_server()?,
    };
    engine::check(&binary).await?;
    // Opened first, so that an error does not appear only after an hour.
    let json = options
        .json
        .map(|file| File::create(&file).with_context(|| format!("{} can't be written", file.display())));
    let json = json.transpose()?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let servers = Servers::find(options.database_url, options.broker_url).await?;
    site::reach_broker(&servers.broker_url).await?;
    let bench = Bench {
        settings: options.set,
        runs: usize::try_from(options.runs)?,
        large: options.large,
        producers: options.producers.into(),
        ..Bench::new(servers, binary, Duration::from_secs(options.seconds))
    };
    let mut report = Report::default();
    let chosen = Chosen {
        parts: options.parts,
        backends: options.backend,
        shapes: options.shape,
        connections: options.connections,
    };
    let measured = tokio::select! {
        measured = measure(&bench, chosen, &mut report) => measured,
        _ = interrupt.recv() => Err(anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow!("terminated")),
    };
    bench.clear().await;
    let about = json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "seconds": options.seconds,
        "runs": options.runs,
        "settings": bench.settings,
        "version": env!("CARGO_PKG_VERSION"),
    });
    // Written even after an error, with everything that was measured before.
    let text = serde_json::to_string_pretty(&report.json(&about))?;
    match json {
        Some(mut file) => writeln!(file, "{text}").context("the JSON can't be written")?,
        None if measured.is_ok() => println!("\n{text}"),
        None => {}
    }
    measured
}

/// What to measure; everything if nothing is named.
struct Chosen {
    parts: Vec<Part>,
    backends: Vec<Backend>,
    shapes: Vec<Shape>,
    connections: Vec<u16>,
}

async fn measure(bench: &Bench, chosen: Chosen, report: &mut Report) -> Result<()> {
    let all = |parts: Vec<Part>| if parts.is_empty() { Part::value_variants().to_vec() } else { parts };
    let backends =
        if chosen.backends.is_empty() { Backend::value_variants().to_vec() } else { chosen.backends };
    let of_steps = chosen.shapes.first().copied().unwrap_or(Shape::USUAL);
    let shapes = if chosen.shapes.is_empty() { Shape::ALL.to_vec() } else { chosen.shapes };
    let connections =
        if chosen.connections.is_empty() { email::CONNECTIONS.to_vec() } else { chosen.connections };
    let mut greatest = None;
    for part in all(chosen.parts) {
        match part {
            Part::Limit => pipeline::limits(bench, report).await?,
            Part::Pipeline => {
                greatest = pipeline::measure(bench, report, &backends, &shapes).await?;
            }
            Part::Latency => {
                let greatest = match greatest {
                    Some(rate) => rate,
                    None => pipeline::usual_rate(bench).await?,
                };
                latency::measure(bench, report, greatest).await?;
            }
            Part::Growth => growth::measure(bench, report).await?,
            Part::FanOut => Box::pin(fan_out::measure(bench, report)).await?,
            Part::Memory => memory::measure(bench, report).await?,
            Part::Email => email::measure(bench, report, &connections).await?,
            Part::Http => http::measure(bench, report, &backends).await?,
            Part::Steps => steps::measure(bench, report, of_steps).await?,
        }
    }
    Ok(())
}
