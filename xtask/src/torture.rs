//! The fault harness `campanile-torture`: built together with the server that it tests, and run against the running
//! servers.
//!
//! The harness decides which faults there are. It reports those that it leaves out because something, such as a script
//! that kills the broker, was not given.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run::{cargo, output_within, within};
use crate::servers::Variables;

/// Enables the failpoints at which tests kill the engine.
pub const FEATURES: [&str; 2] = ["--features", "campanile/failpoints"];

const HARNESS: &str = "campanile-torture";
const SERVER: &str = "campanile";

/// The purpose of the build.
#[derive(Debug, Clone, Copy)]
pub enum Build {
    /// As part of the build of all tests. For fewer packages cargo would choose other features of their dependencies
    /// and build those again.
    WithTests,
    Release,
}

#[derive(Debug)]
pub struct Torture {
    harness: PathBuf,
    server: PathBuf,
}

impl Torture {
    pub fn build(root: &Path, limit: Duration, build: Build) -> Result<Self> {
        // Cargo knows the settings that decide where programs are built.
        let messages = output_within(limit, "the build of the fault harness", &build.command(root))?;
        let program = |name| {
            executable(&messages, name)
                .with_context(|| format!("cargo does not tell where it built `{name}`"))
        };
        Ok(Self { harness: program(HARNESS)?, server: program(SERVER)? })
    }

    /// Runs the harness with these arguments; `what` names the run in errors.
    pub fn run(
        &self,
        limit: Duration,
        what: &str,
        arguments: &[String],
        variables: &Variables,
    ) -> Result<()> {
        let mut harness = Command::new(&self.harness);
        harness.args(arguments).arg("--campanile").arg(&self.server).envs(variables);
        within(limit, what, &harness)
    }
}

impl Build {
    fn command(self, root: &Path) -> Command {
        let mut command = cargo(root, &["build"]);
        match self {
            Self::WithTests => command.args(["--workspace", "--tests"]),
            Self::Release => command.args(["--release", "-p", SERVER, "-p", HARNESS]),
        };
        command
            .args(["--bin", SERVER, "--bin", HARNESS, "--message-format=json-render-diagnostics"])
            .args(FEATURES);
        command
    }
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
    kind: Vec<String>,
}

/// The path of a program. Its unit tests are executables of another name.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| {
            artifact.target.name == name && artifact.target.kind.iter().any(|kind| kind == "bin")
        })
        .filter_map(|artifact| artifact.executable)
        .find(|path| path.file_stem().is_some_and(|stem| stem == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"
{"reason":"build-script-executed","package_id":"x"}
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"campanile"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"campanile"},"executable":"/d/deps/campanile-0f1e"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"campanile"},"executable":"/d/campanile"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"campanile-torture"},"executable":"/d/campanile-torture"}
{"reason":"build-finished","success":true}
"#;

    #[test]
    fn programs_are_told_from_libraries_and_from_their_tests() {
        assert_eq!(executable(MESSAGES, "campanile"), Some("/d/campanile".into()));
        assert_eq!(executable(MESSAGES, "campanile-torture"), Some("/d/campanile-torture".into()));
        assert_eq!(executable(MESSAGES, "xtask"), None);
    }

    #[test]
    fn both_builds_have_the_points_of_failure() {
        for build in [Build::WithTests, Build::Release] {
            let command = build.command(Path::new("/"));
            let arguments: Vec<&str> = command.get_args().filter_map(|part| part.to_str()).collect();
            assert!(arguments.ends_with(&FEATURES), "{arguments:?}");
        }
    }
}
