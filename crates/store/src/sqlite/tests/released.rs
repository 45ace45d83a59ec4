//! Files and programs of other releases: what was released is not edited, what it says is still understood, and a file goes
//! from one to the other and back (decision 0015).

use rusqlite::Connection;

use super::{Folder, count, event};
use crate::conformance::released::{insertions, parse};
use crate::sqlite::migrations;
use crate::{Acceptance, EventStore};

/// Every release, with the checksum of its migration and what it says to the database.
const RELEASED: &[(&str, u64, &str)] = &[
    ("V1", 7_243_473_000_812_081_730, include_str!("../migrations/released/V1.sql")),
    ("V2", 17_278_329_805_059_041_196, include_str!("../migrations/released/V2.sql")),
];

fn statements() -> impl Iterator<Item = (String, String)> {
    RELEASED.iter().flat_map(|(release, _, text)| {
        parse(text).into_iter().map(move |(name, sql)| (format!("{name} of {release}"), sql))
    })
}

/// Columns in which a row has nothing if it does not say so, and may not.
fn mandatory(connection: &Connection, table: &str) -> Vec<String> {
    let sql = r#"SELECT name FROM pragma_table_info(?) WHERE "notnull" = 1 AND dflt_value IS NULL"#;
    let mut mandatory = connection.prepare(sql).unwrap();
    mandatory.query_map([table], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_released_migration_is_never_edited() {
    let migrations = migrations().unwrap();
    for (migration, (release, checksum, _)) in migrations.iter().zip(RELEASED) {
        assert_eq!(migration.checksum(), *checksum, "{release}: write a new migration instead");
    }
}

#[test]
fn what_a_release_says_is_still_understood() {
    let folder = Folder::new();
    let _store = folder.open();
    let connection = folder.connect();
    for (name, sql) in statements() {
        if let Err(error) = connection.prepare(&sql) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn rows_of_a_release_are_still_taken() {
    let folder = Folder::new();
    let _store = folder.open();
    let connection = folder.connect();
    let mut looked_at = 0;
    for (name, sql) in statements() {
        for (table, given) in insertions(&sql) {
            let missing: Vec<_> =
                mandatory(&connection, &table).into_iter().filter(|column| !given.contains(column)).collect();
            assert!(missing.is_empty(), "{name} knows nothing of {missing:?} in {table}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 20, "{looked_at}");
}

#[tokio::test]
async fn a_file_of_each_release_is_upgraded() {
    let all = migrations().unwrap();
    for released in 1..=RELEASED.len() {
        let folder = Folder::new();
        let mut connection = folder.connect();
        refinery::Runner::new(&all[..released]).run(&mut connection).unwrap();
        connection
            .execute_batch(
                "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id)
                 VALUES ('a', 'ORDER_CREATED', 'ORDER', '7')",
            )
            .unwrap();
        let store = folder.open();
        assert_eq!(store.accept(vec![event("a")]).await.unwrap(), Acceptance::Accepted(vec![false]));
        let applied = i64::try_from(all.len()).unwrap();
        assert_eq!(count(&connection, "SELECT count(*) FROM refinery_schema_history"), applied);
    }
}

#[test]
fn what_was_in_doubt_before_is_listed_since_its_last_attempt() {
    let folder = Folder::new();
    let mut connection = folder.connect();
    refinery::Runner::new(&migrations().unwrap()[..2]).run(&mut connection).unwrap();
    connection
        .execute_batch(
            "INSERT INTO send (notification_id, channel, recipient_address, status, created_at)
             VALUES ('a', 'SMS', '+39', 'IN_DOUBT', '2026-01-21T10:15:30.000Z'), ('b', 'SMS', '+39', 'IN_DOUBT', '2026-01-22T10:15:30.000Z'),
                    ('c', 'SMS', '+39', 'SENT', '2026-01-23T10:15:30.000Z');
             INSERT INTO send_attempt (notification_id, channel, at, outcome, duration_ms)
             VALUES ('a', 'SMS', '2026-01-21T10:16:00.000Z', 'RETRY', 5), ('a', 'SMS', '2026-01-21T10:17:00.000Z', 'UNKNOWN', 5)",
        )
        .unwrap();
    let _store = folder.open();
    let listed = "SELECT count(*) FROM send_doubt
                  WHERE (since, notification_id, channel) IN (VALUES ('2026-01-21T10:17:00.000Z', 'a', 'SMS'),
                                                                     ('2026-01-22T10:15:30.000Z', 'b', 'SMS'))";
    assert_eq!(count(&connection, listed), 2);
    assert_eq!(count(&connection, "SELECT count(*) FROM send_doubt"), 2);
}

#[tokio::test]
async fn a_file_that_a_later_release_upgraded_can_still_be_used() {
    let folder = Folder::new();
    drop(folder.open());
    folder
        .connect()
        .execute_batch(
            "ALTER TABLE event_outbox ADD COLUMN later TEXT;
             INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             VALUES (9999, 'later', '2026-01-21T10:15:30Z', '7')",
        )
        .unwrap();
    let store = folder.open();
    assert_eq!(store.accept(vec![event("a")]).await.unwrap(), Acceptance::Accepted(vec![true]));
}
