//! The workspace's own commands, run as `cargo xtask …`: all tests, the style checks, the servers that they need, and
//! the long runs.
//!
//! Each command has a file of its own; this one parses the command line and reports the result.

mod deny;
mod run;
mod servers;
mod soak;
mod test;
mod tidy;
mod tools;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// Tests and style checks, with everything that they need.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Checks format, style and lints, then runs every test; with filters, runs only the tests that match.
    Test(test::Options),
    /// Checks file sizes, names, layers and dependencies.
    Tidy,
    /// Runs the fault tests for minutes instead of seconds.
    Soak(soak::Options),
    /// Runs the servers that tests need until Ctrl-C, and prints their URLs.
    Servers,
    /// Internal: supervises the servers.
    #[command(hide = true)]
    Keep(servers::Wanted),
}

fn main() -> ExitCode {
    match perform(&CommandLine::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nFAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &Task) -> Result<()> {
    let root = workspace_root()?;
    match task {
        Task::Test(options) => test::run(&root, options),
        Task::Tidy => tidy::run(&root),
        Task::Soak(options) => soak::run(&root, options),
        Task::Servers => servers::run(),
        Task::Keep(wanted) => servers::keep(*wanted),
    }
}

/// Cargo passes the folder of xtask's sources at run time. It differs from the compiled one when several checkouts
/// share a target folder.
fn workspace_root() -> Result<PathBuf> {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&xtask).parent().context("xtask lies in no folder")?;
    Ok(root.to_owned())
}
