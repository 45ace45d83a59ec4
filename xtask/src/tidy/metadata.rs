//! Cargo's metadata of the workspace: its packages, their dependencies, and which packages are really built.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::line_where;
use crate::run;

#[derive(Debug)]
pub struct Workspace {
    pub members: Vec<Member>,
    /// All packages of the lock file for this platform, used or not.
    others: Vec<Package>,
    used: BTreeSet<(String, String)>,
    lock: String,
}

/// A package of the workspace, with its dependencies.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    /// The path of its manifest, relative to the workspace.
    pub path: String,
    pub manifest: String,
    /// Dependencies of every kind, by their published names.
    pub dependencies: Vec<String>,
    /// Those that are not only for tests.
    pub shipped_dependencies: Vec<String>,
}

/// An external package.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    pub source: Option<String>,
}

impl Workspace {
    pub fn load(root: &Path) -> Result<Self> {
        let host = host_triple(&run::output(&mut run::cargo(root, &["-vV"]))?)?;
        let features = ["--locked", "--all-features"];
        let mut metadata =
            run::cargo(root, &["metadata", "--format-version", "1", "--filter-platform", &host]);
        let metadata = run::output(metadata.args(features))?;
        // The metadata also contains optional packages that only a weak feature (`name?/feature`) mentions, and that
        // are never built. `cargo tree` leaves them out.
        let mut tree = run::cargo(root, &["tree", "--workspace", "--prefix", "none", "--format", "{p}"]);
        let tree = run::output(tree.args(features).args(["--edges", "normal,build,dev", "--target", &host]))?;
        let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
        Self::read(&metadata, &tree, lock)
    }

    fn read(metadata: &str, tree: &str, lock: String) -> Result<Self> {
        let metadata: Metadata = serde_json::from_str(metadata).context("cannot read `cargo metadata`")?;
        let mut members = Vec::new();
        let mut others = Vec::new();
        for listed in metadata.packages {
            if metadata.workspace_members.contains(&listed.id) {
                members.push(listed.into_member(&metadata.workspace_root)?);
            } else {
                others.push(listed.into_package());
            }
        }
        Ok(Self { members, others, used: tree.lines().filter_map(name_and_version).collect(), lock })
    }

    /// The external packages that are built for this platform, with all features of the workspace.
    pub fn used(&self) -> impl Iterator<Item = &Package> {
        self.others.iter().filter(|package| {
            // Owned strings, because a set of pairs cannot be searched with a pair of references.
            self.used.contains(&(package.name.clone(), package.version.clone()))
        })
    }

    /// The line of a package in the lock file.
    pub fn line_in_lock(&self, package: &Package) -> usize {
        let name = format!("name = \"{}\"", package.name);
        let version = format!("version = \"{}\"", package.version);
        let lines: Vec<&str> = self.lock.lines().collect();
        lines
            .windows(2)
            .position(|pair| pair == [name.as_str(), version.as_str()])
            .map_or(1, |index| index + 1)
    }
}

impl Member {
    /// The line of a dependency in the manifest.
    pub fn line_of(&self, dependency: &str) -> usize {
        line_where(&self.manifest, |line| {
            line.trim_start().strip_prefix(dependency).is_some_and(|after| after.starts_with(['.', ' ', '=']))
        })
    }
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Listed>,
    workspace_members: BTreeSet<String>,
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or none for an ordinary one.
    kind: Option<String>,
}

impl Listed {
    fn into_member(self, root: &Path) -> Result<Member> {
        let manifest = fs::read_to_string(&self.manifest_path)
            .with_context(|| format!("cannot read {}", self.manifest_path.display()))?;
        let path = self.manifest_path.strip_prefix(root).unwrap_or(&self.manifest_path);
        let is_shipped = |dependency: &&Dependency| dependency.kind.as_deref() != Some("dev");
        let shipped = self.dependencies.iter().filter(is_shipped);
        Ok(Member {
            name: self.name,
            path: path.display().to_string(),
            manifest,
            shipped_dependencies: shipped.map(|dependency| dependency.name.clone()).collect(),
            dependencies: self.dependencies.into_iter().map(|dependency| dependency.name).collect(),
        })
    }

    fn into_package(self) -> Package {
        Package { name: self.name, version: self.version, license: self.license, source: self.source }
    }
}

fn host_triple(version: &str) -> Result<String> {
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`cargo -vV` does not name the host")?.to_owned())
}

/// Reads a line of `cargo tree`: `serde v1.0.0`, followed by text that is ignored.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    Some((name.to_owned(), version.to_owned()))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A workspace that uses these packages, with one more in its lock file that is not used.
    pub fn workspace(mut packages: Vec<Package>) -> Workspace {
        let entry = |package: &Package| {
            format!("[[package]]\nname = \"{}\"\nversion = \"{}\"\n", package.name, package.version)
        };
        let lock = packages.iter().map(entry).collect();
        let used = packages.iter().map(|package| (package.name.clone(), package.version.clone())).collect();
        packages.push(Package {
            name: "unused".into(),
            version: "0.0.0".into(),
            license: None,
            source: None,
        });
        Workspace { members: Vec::new(), others: packages, used, lock }
    }

    #[test]
    fn only_packages_in_the_tree_are_used() {
        let metadata = r#"{ "workspace_root": "x", "workspace_members": [], "packages": [
            { "id": "1", "name": "serde", "version": "1.0.0", "license": "MIT", "source": null,
              "manifest_path": "x", "dependencies": [] },
            { "id": "2", "name": "defmt", "version": "1.2.0", "license": "MIT", "source": null,
              "manifest_path": "x", "dependencies": [] } ] }"#;
        let tree = "serde v1.0.0\nserde_derive v1.0.0 (proc-macro)\n\nserde v1.0.0 (*)\n";
        let workspace = Workspace::read(metadata, tree, String::new()).unwrap();
        let used: Vec<&str> = workspace.used().map(|package| package.name.as_str()).collect();
        assert_eq!(used, ["serde"]);
    }

    #[test]
    fn manifest_lines_are_found_by_whole_names() {
        let manifest = "[dependencies]\ntokio-util.workspace = true\ntokio = \"1\"\n".into();
        let (name, path, dependencies) = ("a".into(), "a".into(), Vec::new());
        let member =
            Member { name, path, manifest, shipped_dependencies: dependencies.clone(), dependencies };
        assert_eq!(member.line_of("tokio"), 3);
        assert_eq!(member.line_of("axum"), 1);
    }

    #[test]
    fn host_is_read_from_the_version_of_cargo() {
        assert_eq!(host_triple("cargo 1.95.0\nhost: a-b-c\nos: x").unwrap(), "a-b-c");
        assert!(host_triple("cargo 1.95.0").is_err());
    }
}
