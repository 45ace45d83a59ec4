//! Documents lead somewhere: a relative link names a file, and so does a path into a crate in the maps of the code.
//!
//! Anchors inside a file are not checked.

use std::collections::HashSet;

use super::Violation;
use super::tree::File;

/// Crates whose sources the maps name, as paths relative to `crates/`.
const CRATES: [&str; 10] =
    ["bench", "broker", "channels", "client", "domain", "engine", "server", "store", "testkit", "torture"];

pub fn check(files: &[File]) -> Vec<Violation> {
    let known = known_paths(files);
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        for (index, line) in file.text.lines().enumerate() {
            let links =
                links(line).filter_map(|link| resolve(&file.path, link)).map(|path| (path, "links to"));
            // Decisions are records of their day: what they name may be gone.
            let is_record = file.is_in("decisions");
            let sources = sources(line).filter(|_| !is_record).map(|path| (path, "names"));
            for (path, verb) in links.chain(sources) {
                if !known.contains(path.as_str()) {
                    let message = format!("{verb} `{path}`, which does not exist; correct the path");
                    violations.push(Violation::new(&file.path, index + 1, message));
                }
            }
        }
    }
    violations
}

/// Files, and the folders that they are in.
fn known_paths(files: &[File]) -> HashSet<&str> {
    let mut known = HashSet::new();
    for file in files {
        known.insert(file.path.as_str());
        known.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    known
}

/// The targets of Markdown links, without anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// A link as a path relative to the workspace; none for addresses and for anchors of the same file.
fn resolve(from: &str, link: &str) -> Option<String> {
    let target = link.split('#').next().filter(|target| !target.is_empty() && !target.contains("://"))?;
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(folders.pop()),
            "." => {}
            name => folders.push(name),
        }
    }
    Some(folders.join("/"))
}

/// Paths in backticks that lead into a crate, such as `engine/src/lib.rs`; those with an ellipsis stand for several.
fn sources(line: &str) -> impl Iterator<Item = String> {
    line.split('`').skip(1).step_by(2).filter_map(|text| {
        let path = text.strip_prefix("crates/").unwrap_or(text).trim_end_matches('/');
        let (name, rest) = path.split_once('/')?;
        let inside = ["src", "tests"].into_iter().any(|folder| rest.split('/').next() == Some(folder));
        let is_one = !path.contains(['…', ' ', '*', '<']);
        (CRATES.contains(&name) && inside && is_one).then(|| format!("crates/{path}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(line: &str) -> usize {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("docs/a.md", line),
            file("docs/guides/b.md", ""),
            file("crates/engine/src/pipeline/mod.rs", ""),
        ];
        check(&files).len()
    }

    #[test]
    fn links_to_files_and_folders_that_exist_pass() {
        for line in [
            "[b](guides/b.md#part)",
            "[b](guides/)",
            "[up](../docs/a.md)",
            "[a](#part)",
            "[w](https://x.y/z)",
        ] {
            assert_eq!(problems(line), 0, "{line}");
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        assert_eq!(problems("[c](guides/c.md) and [d](../d.md)"), 2);
    }

    #[test]
    fn paths_into_crates_must_exist() {
        assert_eq!(
            problems("`engine/src/pipeline/mod.rs`, `crates/engine/src/pipeline/`, `store/src/…/a.rs`"),
            0
        );
        assert_eq!(problems("`engine/src/gone.rs` and `a/src/b.rs`"), 1);
    }
}
