//! `cargo deny`: licences and sources of the packages that are built, and which crate may depend on which of them.
//!
//! `deny.toml` explains each rule. A missing cargo-deny is built from crates.io, once per `target` folder.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::run::{cargo, headline, within, works};

/// The version that is built where none is installed.
const VERSION: &str = "0.20.2";

pub fn check(root: &Path, limit: Duration) -> Result<()> {
    headline("Packages: cargo deny check");
    // A folder per version, so that another version is built anew.
    let tools = format!("target/tools/cargo-deny-{VERSION}");
    let ours = root.join(&tools).join("bin/cargo-deny");
    let installed = works(cargo(root, &["deny", "--version"]));
    if !installed && !works(version_of(&ours)) {
        println!("cargo-deny is not installed; it is built into {tools} now");
        let mut install =
            cargo(root, &["install", "cargo-deny", "--locked", "--quiet", "--version", VERSION]);
        install.args(["--root", &tools]);
        within(limit, "the build of cargo-deny", &install)?;
    }
    let mut deny = if installed { cargo(root, &["deny"]) } else { Command::new(ours) };
    // Advisories need a git server, and change without us.
    deny.args([
        "--all-features",
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]);
    within(limit, "cargo deny", deny.current_dir(root))
}

fn version_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--version");
    command
}
