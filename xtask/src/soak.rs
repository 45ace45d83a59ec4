//! `cargo xtask soak`: runs the fault harness for minutes instead of seconds, with faults from a seed.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;

use crate::run::{cargo, headline, within};
use crate::servers::{Servers, Variables};
use crate::tools;
use crate::torture::{Build, FEATURES, Torture};

/// A full release build takes minutes, and a fault that is in progress when the time is over may, too.
const ALLOWANCE_MINUTES: u32 = 30;

#[derive(Debug, Args)]
pub struct Options {
    /// How long to run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// Seed of an earlier run, to repeat its faults [default: random].
    #[arg(long)]
    seed: Option<u64>,
    /// Only rounds of this name, such as `servers-2`; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let seed = options.seed.unwrap_or_else(seed_of_the_moment);
    let arguments = options.arguments(seed);
    headline(&format!("Soak: cargo xtask {}", arguments.join(" ")));

    // They start while the compiler works.
    let mut servers = Servers::start()?;
    let torture = Torture::build(root, Duration::from_mins(ALLOWANCE_MINUTES.into()), Build::Release)?;
    let variables = servers.ready()?;
    let limit = Duration::from_mins((options.minutes + ALLOWANCE_MINUTES).into());
    torture.run(limit, &format!("the soak with seed {seed}"), &arguments, &variables)?;
    if options.only.is_empty() {
        try_api(root, options.minutes, &variables)?;
    }

    println!("\nSoak passed: {} minutes with seed {seed}.", options.minutes);
    Ok(())
}

/// Schemathesis tries the API for half as long, on both back ends at the same time.
fn try_api(root: &Path, minutes: u32, variables: &Variables) -> Result<()> {
    headline("Schemathesis");
    let limit = Duration::from_mins((minutes + ALLOWANCE_MINUTES).into());
    let tools = tools::install(root, limit)?;
    let mut tests = cargo(root, &["test", "-p", "campanile", "--test", "suite"]);
    tests.args(FEATURES).args(["--", "schemathesis_finds_nothing"]).envs(variables).envs(tools);
    tests.env("CAMPANILE_TEST_SCHEMATHESIS_SECONDS", (minutes * 30).max(60).to_string());
    within(limit, "Schemathesis", &tests)
}

impl Options {
    /// The arguments for the harness, which has the same ones.
    fn arguments(&self, seed: u64) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["soak", "--minutes", &self.minutes.to_string(), "--seed", &seed.to_string()]
                .map(ToOwned::to_owned)
                .into();
        for name in &self.only {
            arguments.extend(["--only".to_owned(), name.clone()]);
        }
        arguments
    }
}

fn seed_of_the_moment() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs().wrapping_mul(1_000_000) + u64::from(now.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_is_repeated_by_what_it_prints() {
        let options =
            Options { minutes: 3, seed: None, only: vec!["mixed".to_owned(), "servers-2".to_owned()] };
        assert_eq!(options.arguments(7).join(" "), "soak --minutes 3 --seed 7 --only mixed --only servers-2");
    }
}
