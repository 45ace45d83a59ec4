//! The files to check: those that git tracks or would add.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// Folders to skip when git is not available.
const IGNORED: [&str; 3] = [".git", "campanile-data", "target"];

#[derive(Debug)]
pub struct File {
    /// Relative to the workspace, with `/` between folders.
    pub path: String,
    /// Empty for files that are not text.
    pub text: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub fn is_sql(&self) -> bool {
        self.has_extension("sql")
    }

    /// The file's name without what follows its first dot.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }

    /// Whether the file is in a folder of this name, at any depth.
    pub fn is_in(&self, folder: &str) -> bool {
        self.folders().any(|name| name == folder)
    }

    /// The names of the folders that the file is in, the outermost first.
    pub fn folders(&self) -> impl DoubleEndedIterator<Item = &str> {
        let folders = self.path.rsplit_once('/').map_or("", |(folders, _)| folders);
        folders.split('/')
    }

    pub fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == wanted)
    }
}

pub fn read(root: &Path) -> Result<Vec<File>> {
    let paths = match listed_by_git(root) {
        Ok(paths) => paths,
        Err(_) => found_in_folder(root, "")?,
    };
    let mut files = Vec::new();
    for path in paths {
        let place = root.join(&path);
        // Git still lists files that were deleted and not committed.
        if place.is_file() {
            let bytes = fs::read(&place).with_context(|| format!("cannot read {}", place.display()))?;
            files.push(File { path, text: String::from_utf8(bytes).unwrap_or_default() });
        }
    }
    Ok(files)
}

fn listed_by_git(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listing = run::output(&mut git)?;
    Ok(listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn found_in_folder(root: &Path, folder: &str) -> Result<Vec<String>> {
    let place = root.join(folder);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| format!("cannot list {}", place.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type()?.is_dir() {
            paths.push(path);
        } else if !IGNORED.contains(&name.as_str()) {
            paths.extend(found_in_folder(root, &path)?);
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_file_are_known_without_the_file_itself() {
        let file = File { path: "crates/store/src/tests.rs".into(), text: String::new() };
        assert!(file.is_rust() && file.is_in("src") && file.is_in("crates"));
        assert!(!file.is_in("tests.rs"));
        assert_eq!(file.stem(), "tests");
    }

    #[test]
    fn walking_the_tree_finds_the_same_sources_as_git() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = found_in_folder(root, "").unwrap();
        assert!(found.contains(&"src/tidy/tree.rs".to_owned()), "{found:?}");
    }
}
