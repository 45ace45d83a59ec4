//! `cargo xtask soak`: the one test that runs for minutes, with faults drawn from a seed.
//!
//! What it does in that time is written in the `soak` test of the server; here it is given time and seed.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::run::{cargo, headline, within};
use crate::servers::Servers;

/// What a run may take beyond its minutes: a release build from nothing, and winding up.
const ALLOWANCE_MINUTES: u32 = 30;

#[derive(Debug, Args)]
pub struct Options {
    /// How long to run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// Repeats the faults of an earlier run, which printed its seed; by default every run draws its own.
    #[arg(long)]
    seed: Option<u64>,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let minutes = options.minutes;
    let seed = options.seed.unwrap_or_else(seed_of_the_moment);
    headline(&format!("Soak: cargo xtask soak --minutes {minutes} --seed {seed}"));

    let mut servers = Servers::start()?;
    let mut soak = cargo(root, &["test", "--release", "-p", "campanile", "--features", "failpoints"]);
    soak.args(["--test", "soak", "--", "--nocapture"])
        .env("CAMPANILE_SOAK_MINUTES", minutes.to_string())
        .env("CAMPANILE_SOAK_SEED", seed.to_string())
        .envs(servers.ready()?);
    let limit = Duration::from_mins((minutes + ALLOWANCE_MINUTES).into());
    within(limit, &format!("the soak with seed {seed}"), &soak)?;

    println!("\nSoaked for {minutes} minutes with seed {seed}, and all is well.");
    Ok(())
}

fn seed_of_the_moment() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().wrapping_mul(1_000_000) + u64::from(now.subsec_micros())
}
