//! Enforces which crate may depend on what: a crate exists where its manifest forbids something.
//!
//! Dependencies of every kind count, including those of tests: a test that bypasses a crate depends on its internals.
//! Which crate may depend on which external package is in `deny.toml`.

use super::Violation;
use super::metadata::{Member, Workspace};

const PURE: &str = "campanile-domain";
const IMPURE: [&str; 4] = ["tokio", "rusqlite", "axum", "reqwest"];

/// Shares no crate with what it tests.
const STRANGER: &str = "campanile-torture";

/// What tests share. Its users ship nothing of it, and it is on no layer, so that tests of every layer may use it.
const TESTKIT: &str = "campanile-testkit";

/// A crate may depend on crates of lower layers only.
const LAYERS: [(&str, u8); 6] = [
    ("campanile", 3),
    ("campanile-engine", 2),
    ("campanile-store", 1),
    ("campanile-broker", 1),
    ("campanile-channels", 1),
    (PURE, 0),
];

pub fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace.members.iter().flat_map(check_member).collect()
}

fn check_member(member: &Member) -> Vec<Violation> {
    let mut violations = Vec::new();
    for dependency in &member.dependencies {
        let reasons = [
            impure(&member.name, dependency),
            upward(&member.name, dependency),
            familiar(&member.name, dependency),
            shipped(member, dependency),
        ];
        for reason in reasons.into_iter().flatten() {
            violations.push(Violation::new(&member.path, member.line_of(dependency), reason));
        }
    }
    // A package may be a dependency of the product and of its tests.
    violations.dedup();
    violations
}

fn impure(member: &str, dependency: &str) -> Option<String> {
    (member == PURE && IMPURE.contains(&dependency))
        .then(|| format!("{PURE} is pure; move {dependency} to the calling crate"))
}

/// Reports a dependency on the same or a higher layer. A crate may depend on itself, so that its tests can use its
/// features.
fn upward(member: &str, dependency: &str) -> Option<String> {
    (member != dependency && layer(dependency)? >= layer(member)?).then(|| {
        format!(
            "{member} must not depend on {dependency}; dependencies point one way: \
             server → engine → store, broker, channels → domain"
        )
    })
}

fn familiar(member: &str, dependency: &str) -> Option<String> {
    ([STRANGER, TESTKIT].contains(&member) && layer(dependency).is_some())
        .then(|| format!("{member} may use HTTP and SQL only, not our crate {dependency}"))
}

/// Reports support of tests in what is shipped. The fault harness is a test itself.
fn shipped(member: &Member, dependency: &str) -> Option<String> {
    let is_shipped = member.shipped_dependencies.iter().any(|shipped| shipped == dependency);
    (dependency == TESTKIT && is_shipped && member.name != STRANGER)
        .then(|| format!("{dependency} is for tests only; move it to [dev-dependencies]"))
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(listed, _)| *listed == name).map(|(_, layer)| *layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, dependencies: &[&str]) -> Vec<String> {
        let manifest =
            dependencies.iter().fold("[dependencies]\n".to_owned(), |text, name| text + name + " = \"1\"\n");
        let member = Member {
            name: name.into(),
            path: "crates/x/Cargo.toml".into(),
            manifest,
            dependencies: dependencies.iter().map(ToString::to_string).collect(),
            shipped_dependencies: dependencies.iter().map(ToString::to_string).collect(),
        };
        check_member(&member).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn domain_is_pure() {
        assert!(found("campanile-domain", &["jiff", "serde"]).is_empty());
        for impure in ["tokio", "reqwest"] {
            assert_eq!(found("campanile-domain", &[impure]).len(), 1);
        }
    }

    #[test]
    fn dependencies_point_one_way() {
        assert!(found("campanile", &["campanile-engine", "campanile-store", "campanile-domain"]).is_empty());
        assert!(found("campanile-engine", &["campanile-broker", "campanile-domain"]).is_empty());
        assert!(found("campanile-broker", &["campanile-broker"]).is_empty());
        assert_eq!(found("campanile-engine", &["campanile"]).len(), 1);
        assert_eq!(found("campanile-store", &["campanile-broker"]).len(), 1);
        assert_eq!(found("campanile-domain", &["campanile-store"]).len(), 1);
    }

    #[test]
    fn torture_knows_none_of_our_crates() {
        assert!(found(STRANGER, &["serde"]).is_empty());
        assert_eq!(found(STRANGER, &["campanile-domain"]).len(), 1);
    }

    #[test]
    fn what_tests_share_is_not_shipped_and_knows_none_of_our_crates() {
        assert_eq!(found("campanile-engine", &[TESTKIT]).len(), 1);
        assert!(found(STRANGER, &[TESTKIT]).is_empty());
        assert_eq!(found(TESTKIT, &["campanile-domain"]).len(), 1);
        let member = Member {
            name: "campanile-engine".into(),
            path: "crates/x/Cargo.toml".into(),
            manifest: "[dev-dependencies]\n".into(),
            dependencies: vec![TESTKIT.into()],
            shipped_dependencies: Vec::new(),
        };
        assert!(check_member(&member).is_empty());
    }

    #[test]
    fn violation_names_the_line_of_the_manifest_once() {
        let found = found("campanile-domain", &["serde", "tokio", "tokio"]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/x/Cargo.toml:3: "), "{found:?}");
    }
}
