//! Test tools from `PyPI` and npm: Schemathesis, and what compiles and runs a generated client and drives a browser.
//!
//! Each list of versions is installed once, into a folder of `target/tools` that is named after the list.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::run::{headline, output, within, works};
use crate::servers::{Missing, Variables, install_packages};

const SCHEMATHESIS: &str = "CAMPANILE_TEST_SCHEMATHESIS";
const NODE_MODULES: &str = "CAMPANILE_TEST_NODE_MODULES";
const CHROMIUM: &str = "CAMPANILE_TEST_CHROMIUM";

/// The lists of versions, relative to the workspace.
const PYTHON_LIST: &str = "crates/server/tests/web/requirements.txt";
const NODE_LISTS: [&str; 2] =
    ["crates/server/tests/web/package.json", "crates/server/tests/web/package-lock.json"];

/// The programs that install and run the tools, how to ask whether they are there, and their packages.
const PROGRAMS: [(&[&str], Missing); 4] = [
    (
        &["python3", "-c", "import venv, ensurepip"],
        Missing { what: "Python with venv", package: "python3-venv" },
    ),
    (&["node", "--version"], Missing { what: "Node.js", package: "nodejs" }),
    (&["npm", "--version"], Missing { what: "npm", package: "npm" }),
    (&["chromium", "--version"], Missing { what: "Chromium", package: "chromium" }),
];

/// Installs what is missing, and returns the variables with which tests find the tools.
pub fn install(root: &Path, limit: Duration) -> Result<Variables> {
    let is_missing = |call: &[&str]| !works(command(call));
    let missing: Vec<Missing> =
        PROGRAMS.iter().filter(|(call, _)| is_missing(call)).map(|(_, missing)| *missing).collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    let python = once(root, "python", &[PYTHON_LIST], |folder| {
        let list = folder.join("requirements.txt");
        within(limit, "python3 -m venv", command(&["python3", "-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"])
            .arg(list);
        within(limit, "pip install", &pip)
    })?;
    let node = once(root, "node", &NODE_LISTS, |folder| {
        let mut npm =
            command(&["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]);
        within(limit, "npm ci", npm.current_dir(folder))
    })?;
    let text = |path: PathBuf| path.display().to_string();
    Ok(Variables::from([
        (SCHEMATHESIS.to_owned(), text(python.join("bin/schemathesis"))),
        (NODE_MODULES.to_owned(), text(node.join("node_modules"))),
        (CHROMIUM.to_owned(), path_of("chromium")?),
    ]))
}

/// The folder into which these lists are installed. A folder whose installation did not end is filled again.
fn once(root: &Path, name: &str, lists: &[&str], fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    let mut copies = Vec::new();
    for path in lists {
        let text = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        text.hash(&mut hasher);
        copies.push(text);
    }
    let folder = root.join(format!("target/tools/{name}-{:016x}", hasher.finish()));
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(folder);
    }
    headline(&format!("Install: {name} packages of {}", lists.join(", ")));
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot remove an incomplete installation")?;
    }
    fs::create_dir_all(&folder).context("cannot create a folder for test tools")?;
    for (list, text) in lists.iter().zip(copies) {
        let base = Path::new(list).file_name().context("a list is a file")?;
        fs::write(folder.join(base), text).context("cannot copy a list of versions")?;
    }
    fill(&folder)?;
    fs::write(complete, "").context("cannot mark an installation as complete")?;
    Ok(folder)
}

/// The full path of a program.
fn path_of(program: &str) -> Result<String> {
    Ok(output(Command::new("which").arg(program))?.trim().to_owned())
}

fn command(call: &[&str]) -> Command {
    let (program, arguments) = call.split_first().unwrap_or((&"", &[]));
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
