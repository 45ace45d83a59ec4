//! Cargo's metadata of the workspace: its packages and what they depend on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::line_where;
use crate::run;

#[derive(Debug)]
pub struct Workspace {
    pub members: Vec<Member>,
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

impl Workspace {
    pub fn load(root: &Path) -> Result<Self> {
        let arguments = ["metadata", "--format-version", "1", "--no-deps", "--locked"];
        let metadata = run::output(&mut run::cargo(root, &arguments))?;
        let metadata: Metadata = serde_json::from_str(&metadata).context("cannot read `cargo metadata`")?;
        let members =
            metadata.packages.into_iter().map(|listed| listed.into_member(&metadata.workspace_root));
        Ok(Self { members: members.collect::<Result<_>>()? })
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
    workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_lines_are_found_by_whole_names() {
        let manifest = "[dependencies]\ntokio-util.workspace = true\ntokio = \"1\"\n".into();
        let (name, path, dependencies) = ("a".into(), "a".into(), Vec::new());
        let member =
            Member { name, path, manifest, shipped_dependencies: dependencies.clone(), dependencies };
        assert_eq!(member.line_of("tokio"), 3);
        assert_eq!(member.line_of("axum"), 1);
    }
}
