//! `cargo xtask test`: runs every test of the workspace.
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let status = Command::new("cargo").args(["test", "--workspace", "--features", "campanile/failpoints"]).status();
    if status.is_ok_and(|s| s.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
