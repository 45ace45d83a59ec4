//! Emits over `rusqlite`, while the engine has the file open.

use ::rusqlite::Connection;
use campanile_client::Error;
use campanile_client::rusqlite::{cancel, emit, emit_all};
use campanile_store::sqlite::Sqlite;
use tempfile::TempDir;

use super::{assert_full, event, full_event, waiting};

/// The folder must be kept for the whole test.
fn open() -> (TempDir, Sqlite, Connection) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("campanile.db");
    let store = Sqlite::open(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    (folder, store, connection)
}

#[tokio::test]
async fn an_event_is_there_when_the_transaction_commits() {
    let (_folder, store, mut connection) = open();
    let transaction = connection.transaction().unwrap();
    assert!(emit(&transaction, &full_event("a")).unwrap());
    assert!(waiting(&store).await.is_empty());
    transaction.commit().unwrap();
    assert_full(&store).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_rollback() {
    let (_folder, store, mut connection) = open();
    let transaction = connection.transaction().unwrap();
    emit(&transaction, &event("a")).unwrap();
    cancel(&transaction, "a", "why").unwrap();
    transaction.rollback().unwrap();
    assert!(waiting(&store).await.is_empty());
    let cancelled: i64 =
        connection.query_row("SELECT count(*) FROM event_cancel", [], |row| row.get(0)).unwrap();
    assert_eq!(cancelled, 0);
}

#[tokio::test]
async fn the_same_event_twice_is_one() {
    let (_folder, store, connection) = open();
    assert!(emit(&connection, &event("a")).unwrap());
    assert!(!emit(&connection, &event("a")).unwrap());
    assert_eq!(waiting(&store).await, ["a"]);
}

#[tokio::test]
async fn an_event_that_was_processed_long_ago_is_not_new() {
    let (_folder, _store, connection) = open();
    let processed = "INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
                     VALUES ('a', 'hash', 'SUCCESS', 'test', '2026-01-21T10:15:30.000Z')";
    connection.execute(processed, []).unwrap();
    assert!(!emit(&connection, &event("a")).unwrap());
}

#[tokio::test]
async fn a_batch_says_of_each_event_whether_it_is_new() {
    let (_folder, store, connection) = open();
    emit(&connection, &event("b")).unwrap();
    let batch = [event("c"), event("b"), event("a"), event("c")];
    assert_eq!(emit_all(&connection, &batch).unwrap(), [true, false, true, false]);
    assert_eq!(waiting(&store).await, ["b", "c", "a"]);
    assert!(emit_all(&connection, &[]).unwrap().is_empty());
}

#[tokio::test]
async fn an_event_is_cancelled_once() {
    let (_folder, _store, connection) = open();
    assert!(cancel(&connection, "a", "sold out").unwrap());
    assert!(!cancel(&connection, "a", "again").unwrap());
    let error = cancel(&connection, "", "why").unwrap_err();
    assert!(matches!(error, Error::Invalid { field: "event_id", .. }), "{error}");
}

#[tokio::test]
async fn an_error_of_the_database_says_what_happened() {
    let error = emit(&Connection::open_in_memory().unwrap(), &event("a")).unwrap_err();
    assert!(error.to_string().contains("no such table"), "{error}");
}
