//! Checks external packages: a permitted licence, the source crates.io, and nothing that makes the build harder.
//!
//! Only packages that are built for this platform count; the lock file also names those of other platforms.

use std::collections::{BTreeMap, BTreeSet};

use super::metadata::{Package, Workspace};
use super::{Violation, licence};

/// Banned packages, each with the reason and a replacement.
const BANNED: [(&str, &str); 7] = [
    ("openssl", "needs a library of the system; TLS is rustls"),
    ("openssl-sys", "needs a library of the system; TLS is rustls"),
    ("native-tls", "needs a library of the system; TLS is rustls"),
    ("aws-lc-rs", "needs cmake; rustls takes its cryptography from ring"),
    ("aws-lc-sys", "needs cmake; rustls takes its cryptography from ring"),
    ("cmake", "is one more thing to install for a build"),
    ("chrono", "is one more notion of time; ours is jiff"),
];

const CRATES_IO: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in workspace.used() {
        for reason in [banned(package), unlicensed(package), foreign(package)].into_iter().flatten() {
            let message = format!(
                "{} {} {reason}; `cargo tree -i {}` shows who brings it",
                package.name, package.version, package.name
            );
            violations.push(Violation::new("Cargo.lock", workspace.line_in_lock(package), message));
        }
    }
    violations
}

/// Packages that are built in several versions. Mostly other packages decide this, so it is only reported.
pub fn duplicates(workspace: &Workspace) -> Option<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in workspace.used() {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let several: Vec<String> = versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| format!("{name} ({})", versions.into_iter().collect::<Vec<_>>().join(", ")))
        .collect();
    (!several.is_empty())
        .then(|| format!("for information, built in several versions: {}", several.join(", ")))
}

fn banned(package: &Package) -> Option<String> {
    let (_, why) = BANNED.iter().find(|(name, _)| *name == package.name)?;
    Some(format!("is banned: it {why}"))
}

fn unlicensed(package: &Package) -> Option<String> {
    let Some(expression) = &package.license else {
        return Some("names no licence; use another package".into());
    };
    match licence::is_allowed(expression) {
        Ok(true) => None,
        Ok(false) => Some(format!("comes under `{expression}`, which is not allowed; use another package")),
        Err(error) => Some(format!("has a licence that cannot be read, `{expression}`: {error}")),
    }
}

fn foreign(package: &Package) -> Option<String> {
    match &package.source {
        None => Some("comes from a folder outside of the workspace; take it from crates.io".into()),
        Some(source) if CRATES_IO.iter().any(|known| source.starts_with(known)) => None,
        Some(source) => Some(format!("comes from {source}; take it from crates.io")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::tests::workspace;
    use super::*;

    fn package(name: &str) -> Package {
        Package {
            name: name.into(),
            version: "1.2.3".into(),
            license: Some("MIT".into()),
            source: Some(CRATES_IO[0].into()),
        }
    }

    fn found(package: Package) -> Vec<String> {
        check(&workspace(vec![package])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ordinary_package_passes_and_unused_ones_do_not_count() {
        assert!(found(package("serde")).is_empty());
    }

    #[test]
    fn banned_packages_are_found_with_their_line() {
        for (name, _) in BANNED {
            let found = found(package(name));
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with(&format!("Cargo.lock:2: {name} 1.2.3 is banned")), "{found:?}");
        }
    }

    #[test]
    fn licence_must_be_there_and_allowed() {
        for license in [None, Some("GPL-3.0".to_owned()), Some("MIT OR".to_owned())] {
            assert_eq!(found(Package { license, ..package("serde") }).len(), 1);
        }
    }

    #[test]
    fn source_must_be_crates_io() {
        for source in [
            None,
            Some("git+https://example.org/serde".to_owned()),
            Some("registry+https://example.org/".to_owned()),
        ] {
            assert_eq!(found(Package { source, ..package("serde") }).len(), 1);
        }
        let sparse = Some(CRATES_IO[1].to_owned());
        assert!(found(Package { source: sparse, ..package("serde") }).is_empty());
    }

    #[test]
    fn several_versions_are_told() {
        assert_eq!(duplicates(&workspace(vec![package("serde"), package("syn")])), None);
        let older = Package { version: "1.0.0".into(), ..package("syn") };
        let note = duplicates(&workspace(vec![package("serde"), package("syn"), older])).unwrap();
        assert!(note.ends_with(": syn (1.0.0, 1.2.3)"), "{note}");
    }
}
