//! Programs of other releases on a newer schema: what was released is not edited, and what it says is still understood
//! (decision 0015).

use super::Database;
use crate::conformance::released::{insertions, parse};
use crate::postgres::migrate;

/// Every release, with the checksum of its migration and what it says to the database.
const RELEASED: &[(&str, u64, &str)] =
    &[("V1", 262_630_952_967_005_200, include_str!("../migrations/released/V1.sql"))];

fn statements() -> impl Iterator<Item = (String, String)> {
    RELEASED.iter().flat_map(|(release, _, text)| {
        parse(text).into_iter().map(move |(name, sql)| (format!("{name} of {release}"), sql))
    })
}

#[test]
fn a_released_migration_is_never_edited() {
    let migrations = migrate::migrations().unwrap();
    for (migration, (release, checksum, _)) in migrations.iter().zip(RELEASED) {
        assert_eq!(migration.checksum(), *checksum, "{release}: write a new migration instead");
    }
}

#[tokio::test]
async fn what_a_release_says_is_still_understood() {
    let database = Database::new().await;
    let client = database.connect().await;
    for (name, sql) in statements() {
        if let Err(error) = client.prepare(&sql).await {
            panic!("{name}: {error:?}");
        }
    }
}

#[tokio::test]
async fn rows_of_a_release_are_still_taken() {
    // Columns in which a row has nothing if it does not say so, and may not.
    let mandatory = "SELECT column_name::text FROM information_schema.columns
                     WHERE table_schema || '.' || table_name = $1 AND is_nullable = 'NO' AND column_default IS NULL
                       AND is_identity = 'NO' AND is_generated = 'NEVER'";
    let database = Database::new().await;
    let client = database.connect().await;
    let mut looked_at = 0;
    for (name, sql) in statements() {
        for (table, given) in insertions(&sql) {
            // An alias may follow.
            let table = table.split(' ').next().unwrap();
            let mandatory = client.query(mandatory, &[&table]).await.unwrap();
            let missing: Vec<String> =
                mandatory.iter().map(|row| row.get(0)).filter(|column| !given.contains(column)).collect();
            assert!(missing.is_empty(), "{name} knows nothing of {missing:?} in {table}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "{looked_at}");
}
