//! `cargo xtask test`: everything that decides whether a change lands, the quick checks first.
//!
//! The first failing step ends it. Each step's tool, or `tidy`, decides what it checks.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use crate::deny;
use crate::run::{cargo, headline, within, works};
use crate::servers::{Servers, Variables};
use crate::tidy;
use crate::tools;
use crate::torture::{Build, FEATURES, Torture};

/// The harness's fixed selection takes a few minutes.
const TORTURE_LIMIT: Duration = Duration::from_mins(10);

#[derive(Debug, Args)]
pub struct Options {
    /// How long the tests may take, their build included; the lints get as long.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Runs only the tests whose name contains one of these, and no other checks.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let limit = Duration::from_mins(options.minutes.into());
    let everything = options.filters.is_empty();
    if everything {
        check_format(root, limit)?;
        headline("Style: tidy");
        tidy::run(root)?;
    }
    // They start while the compiler works.
    let servers = Servers::start()?;
    if everything {
        deny::check(root, limit)?;
        check_lints(root, limit)?;
    }
    run_tests(root, limit, &options.filters, servers)?;
    println!("\nAll checks passed.");
    Ok(())
}

fn check_format(root: &Path, limit: Duration) -> Result<()> {
    headline("Format: cargo fmt --check");
    ensure!(
        works(cargo(root, &["fmt", "--version"])),
        "rustfmt is not installed; run `rustup component add rustfmt`"
    );
    within(limit, "the format check (run `cargo fmt`)", &cargo(root, &["fmt", "--all", "--check"]))
}

fn check_lints(root: &Path, limit: Duration) -> Result<()> {
    headline("Lints: cargo clippy");
    ensure!(
        works(cargo(root, &["clippy", "--version"])),
        "clippy is not installed; run `rustup component add clippy`"
    );
    let mut clippy = cargo(root, &["clippy", "--workspace", "--all-targets"]);
    clippy.args(FEATURES).args(["--", "-D", "warnings"]);
    within(limit, "clippy", &clippy)
}

fn run_tests(root: &Path, limit: Duration, filters: &[String], mut servers: Servers) -> Result<()> {
    let everything = filters.is_empty();
    let deadline = Instant::now() + limit;
    let nextest = works(cargo(root, &["nextest", "--version"]));
    let call: &[&str] =
        if nextest { &["nextest", "run", "--workspace"] } else { &["test", "--workspace", "--no-fail-fast"] };

    headline("Build of the tests");
    let mut build = cargo(root, call);
    build.arg("--no-run").args(FEATURES);
    within(left_until(deadline), "the build of the tests", &build)?;
    let torture =
        if everything { Some(Torture::build(root, left_until(deadline), Build::WithTests)?) } else { None };
    let mut variables = servers.ready()?;
    variables.extend(tools::install(root, left_until(deadline))?);

    headline(if nextest {
        "Tests: cargo nextest run"
    } else {
        "Tests: cargo test (cargo-nextest, where installed, is faster)"
    });
    let mut tests = cargo(root, call);
    tests.args(FEATURES).arg("--").args(filters).envs(&variables);
    for (variable, test, why) in without_companions(&variables) {
        println!("SKIPPED: `{test}`, because {why}; set {variable} to run it");
        tests.args(["--skip", test]);
    }
    // A snapshot that is missing or another fails its test, and no file is written.
    tests.env("INSTA_UPDATE", "no");
    within(left_until(deadline), "the tests", &tests)?;

    if everything {
        headline("Tests: SQLite as it is shipped, in the release profile");
        let release = ["test", "--release", "--quiet", "-p", "campanile-store", "--test", "sqlite"];
        within(left_until(deadline), "the tests of SQLite in the release profile", &cargo(root, &release))?;
    }
    if let Some(torture) = torture {
        headline("Torture: a fixed selection of faults");
        torture.run(TORTURE_LIMIT, "the torture", &["selection".to_owned()], &variables)?;
    }
    if nextest && everything {
        headline("Tests: cargo test --doc (nextest leaves them out)");
        let mut examples = cargo(root, &["test", "--workspace", "--doc", "--quiet"]);
        examples.args(FEATURES).envs(&variables);
        within(limit, "the examples in the documentation", &examples)?;
    }
    Ok(())
}

/// Tests that need more of a server than its URL. Our own servers provide it; for others the environment may.
const COMPANIONS: [(&str, &str, &str); 3] = [
    ("CAMPANILE_TEST_CA_FILE", "postgres::tests::tls", "the CA of the database's certificate is unknown"),
    (
        "CAMPANILE_TEST_PGBOUNCER_URL",
        "a_pooler_in_session_mode_may_stand_between",
        "the pooler of the database is unknown",
    ),
    ("CAMPANILE_TEST_RABBITMQCTL", "permissions::", "rabbitmqctl of the broker is unknown"),
];

fn without_companions(
    variables: &Variables,
) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    COMPANIONS
        .iter()
        .filter(|(variable, ..)| !variables.contains_key(*variable) && std::env::var_os(variable).is_none())
}

/// At least a second, because 0 means no limit to `timeout`.
fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1))
}
