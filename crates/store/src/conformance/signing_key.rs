//! Checks the keys that sign tokens: all instances get the same, and a rotation keeps or deletes the older ones.

use campanile_domain::access::audit::{Actor, AuditAction};

use super::Fixture;
use crate::{AuditOf, Shown};

async fn secrets(fixture: &Fixture, first: &str) -> Vec<String> {
    let keys = fixture.store.signing_keys(first).await.expect("the database is there");
    assert!(keys.is_sorted_by(|a, b| a.id > b.id), "the newest first");
    keys.into_iter().map(|key| key.secret).collect()
}

pub async fn of_several_first_keys_one_is_used(fixture: &Fixture) {
    let (a, b) = tokio::join!(secrets(fixture, "a"), secrets(fixture, "b"));
    assert_eq!((a.len(), &a), (1, &b));
    assert_eq!(secrets(fixture, "c").await, a);
}

pub async fn a_rotated_key_signs_and_the_older_ones_stay_until_they_are_revoked(fixture: &Fixture) {
    secrets(fixture, "first").await;
    let rotate = async |secret: &str, revoke_old| {
        let rotated = fixture.store.rotate_signing_key(secret, revoke_old, &Actor::AdminKey).await;
        rotated.expect("the database is there")
    };
    let second = rotate("second", false).await;
    assert_eq!(secrets(fixture, "x").await, ["second", "first"]);
    assert!(rotate("third", true).await > second, "numbers are not used twice");
    assert_eq!(secrets(fixture, "x").await, ["third"]);
    let of = AuditOf::Type("signing_key".to_owned());
    let changes = fixture.store.list_audit(of, None, 10).await.expect("the database is there");
    assert!(changes.len() == 2 && changes.iter().all(|c| c.action == Shown::Typed(AuditAction::Rotate)));
    assert!(!format!("{changes:?}").contains("third"));
}
