//! Builds the measured program with the cargo that runs the benchmark.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

const SERVER: &str = "campanile";

pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let root = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| root.into(), |own| PathBuf::from(own).join("../.."));
    command.args(arguments).current_dir(root);
    // Cargo's own variables would make build scripts run again that depend on them.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// One of cargo's messages, about something built.
#[derive(Debug, Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

/// Builds the release server and returns its path. The benchmark is built with it, so that both agree on the features
/// of shared crates and nothing is built twice.
pub fn build_server() -> Result<PathBuf> {
    let packages = ["-p", SERVER, "-p", env!("CARGO_PKG_NAME")];
    let mut command = cargo(&["build", "--release", "--message-format=json-render-diagnostics"]);
    let output =
        command.args(packages).stderr(Stdio::inherit()).output().context("cargo can't be started")?;
    ensure!(output.status.success(), "cannot build the server; see the output above");
    let messages = String::from_utf8(output.stdout).context("cargo writes something else than UTF-8")?;
    let built = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    built
        .filter(|artifact| artifact.target.name == SERVER)
        .find_map(|artifact| artifact.executable)
        .context("cargo does not tell where it built the server")
}
