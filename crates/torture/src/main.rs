//! Fault tests against real instances of Campanile, with a ledger that shows whether anything was lost or sent twice.
//!
//! A round builds a world. It has PostgreSQL and RabbitMQ (or the embedded defaults), and instances of the real binary,
//! each behind proxies. A provider in a process of its own records every message that it accepts. Producers commit and
//! roll back by SQL and by HTTP. Then faults happen, determined by a seed. At the end everything is repaired, and what
//! was committed is compared with what arrived. Start reading at `round.rs`; the faults are in `fault/`, the checks in
//! `ledger.rs`.
//!
//! It uses none of Campanile's own crates, only HTTP, SQL and processes, as users do. `cargo xtask soak` starts the
//! servers that it needs and runs it.

mod database;
mod fault;
mod fuzz;
mod instance;
mod journal;
mod ledger;
mod load;
mod people;
mod plan;
mod provider;
mod provider_process;
mod random;
mod report;
mod round;
mod servers;
mod small_disk;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};

use report::Report;
use round::Round;
use servers::Servers;
use small_disk::SmallDisk;

/// Faults of every kind against real instances of Campanile.
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Random faults from a seed, for some minutes.
    Soak {
        #[command(flatten)]
        common: Common,
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Seed; repeats the same faults.
        #[arg(long)]
        seed: u64,
    },
    /// Every fault once, in a fixed order.
    Selection {
        #[command(flatten)]
        common: Common,
    },
    /// Internal: the fake provider process.
    #[command(hide = true)]
    Provider(provider::Options),
}

#[derive(Debug, Args)]
struct Common {
    /// The binary to torture, built with the feature `failpoints`.
    #[arg(long)]
    campanile: PathBuf,
    /// Only the rounds of this name; may be given several times.
    #[arg(long, value_name = "ROUND")]
    only: Vec<String>,
}

fn main() -> ExitCode {
    match perform(CommandLine::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nFAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<()> {
    if !matches!(task, Task::Provider(_)) {
        small_disk::enter_own_namespace()?;
    }
    // The client requires a crypto provider, although all HTTP is plain and local.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(task))
}

async fn run(task: Task) -> Result<()> {
    match task {
        Task::Provider(options) => provider::run(options).await,
        Task::Soak { common, minutes, seed } => soak(&common, Duration::from_mins(minutes), seed).await,
        Task::Selection { common } => selection(&common).await,
    }
}

const SELECTION_SEED: u64 = 20_261_116;

async fn selection(common: &Common) -> Result<()> {
    let mut report = Report::default();
    for (round, seed) in wanted(plan::selection(), &common.only)?.into_iter().zip(SELECTION_SEED..) {
        play(round, common, seed, &mut report).await;
    }
    report.conclude()
}

/// Runs rounds until the time is over.
async fn soak(common: &Common, length: Duration, seed: u64) -> Result<()> {
    let begun = Instant::now();
    let kinds = u32::try_from(wanted(plan::soak(Duration::from_secs(1)), &common.only)?.len())?;
    // The checks after the faults take about as long again.
    let each = (length / kinds / 2).clamp(Duration::from_secs(15), Duration::from_mins(5));
    let mut report = Report::default();
    let rounds = wanted(plan::soak(each), &common.only)?;
    // Every kind of round runs once, even after the time is over.
    let once = rounds.len();
    for (played, (round, seed)) in rounds.into_iter().cycle().zip(seed..).enumerate() {
        if played >= once && begun.elapsed() >= length {
            break;
        }
        play(round, common, seed, &mut report).await;
    }
    report.conclude()
}

fn wanted(mut rounds: Vec<Round>, only: &[String]) -> Result<Vec<Round>> {
    let names: Vec<&str> = rounds.iter().map(|round| round.name).collect();
    for name in only {
        ensure!(names.contains(&name.as_str()), "there is no round `{name}`; there are {}", names.join(", "));
    }
    rounds.retain(|round| only.is_empty() || only.iter().any(|name| name == round.name));
    Ok(rounds)
}

async fn play(round: Round, common: &Common, seed: u64, report: &mut Report) {
    let name = round.name;
    if round.small_disk && !SmallDisk::possible() {
        report.leave_out(name, "permission to mount a file system");
        return;
    }
    println!(
        "\n{name}: {} on {:?}, in doubt: {}, seed {seed}",
        instances(&round),
        round.backend,
        round.on_doubt.as_str()
    );
    let begun = Instant::now();
    let outcome = round::run(round, &Servers::from_environment(), &common.campanile, seed).await;
    report.add(name, seed, begun.elapsed(), outcome);
}

fn instances(round: &Round) -> String {
    if round.instances == 1 { "one instance".to_owned() } else { format!("{} instances", round.instances) }
}
