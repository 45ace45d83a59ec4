//! `cargo xtask tidy`: checks the project's conventions.
//!
//! Each file in this folder checks and explains one convention; this one collects the violations. What rustfmt, clippy
//! and cargo-deny check is left to them.

mod blank;
mod channels;
mod dialect;
mod layers;
mod line_length;
mod links;
mod machine_paths;
mod metadata;
mod names;
mod opening;
mod size;
mod sql;
mod tree;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use metadata::Workspace;
use tree::File;

pub fn run(root: &Path) -> Result<()> {
    let files = tree::read(root)?;
    let workspace = Workspace::load(root)?;
    let mut violations = check(&files, &workspace);
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => println!("tidy: checked {} files, no problems", files.len()),
        1 => bail!("tidy found 1 problem"),
        count => bail!("tidy found {count} problems"),
    }
    Ok(())
}

fn check(files: &[File], workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        violations.extend(opening::check(file));
        violations.extend(size::check(file));
        violations.extend(words::check(file));
        violations.extend(line_length::check(file));
        violations.extend(dialect::check(file));
        violations.extend(names::check(file));
        violations.extend(machine_paths::check(file));
    }
    violations.extend(links::check(files));
    violations.extend(sql::check_twins(files));
    violations.extend(channels::check(files));
    violations.extend(layers::check(workspace));
    violations
}

/// What is wrong, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The number, from 1, of the first line that satisfies the condition. 1 if there is none, so that there is always a
/// place to name.
fn line_where(text: &str, condition: impl Fn(&str) -> bool) -> usize {
    text.lines().position(condition).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violation_is_written_as_path_line_and_message() {
        assert_eq!(Violation::new("src/a.rs", 7, "too long").to_string(), "src/a.rs:7: too long");
    }
}
