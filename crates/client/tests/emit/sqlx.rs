//! Emits over `sqlx`.

use ::sqlx::{Connection, PgConnection};
use campanile_client::Error;
use campanile_client::sqlx::{cancel, emit, emit_all};
use campanile_store::conformance::TestDatabase;
use campanile_store::postgres::test_database::Database;

use super::{assert_full, event, full_event, waiting};

async fn connect(database: &Database) -> PgConnection {
    PgConnection::connect(&database.url).await.unwrap()
}

#[tokio::test]
async fn an_event_is_there_when_the_transaction_commits() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut connection = connect(&database).await;
    let mut transaction = connection.begin().await.unwrap();
    assert!(emit(&mut *transaction, &full_event("a")).await.unwrap());
    assert!(waiting(&store).await.is_empty());
    transaction.commit().await.unwrap();
    assert_full(&store).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_rollback() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut connection = connect(&database).await;
    let mut transaction = connection.begin().await.unwrap();
    emit(&mut *transaction, &event("a")).await.unwrap();
    cancel(&mut *transaction, "a", "why").await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(waiting(&store).await.is_empty());
    assert_eq!(database.count("SELECT count(*) FROM event_cancel").await, 0);
}

#[tokio::test]
async fn the_same_event_twice_is_one() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut connection = connect(&database).await;
    assert!(emit(&mut connection, &event("a")).await.unwrap());
    assert!(!emit(&mut connection, &event("a")).await.unwrap());
    assert_eq!(waiting(&store).await, ["a"]);
}

#[tokio::test]
async fn a_batch_says_of_each_event_whether_it_is_new() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut connection = connect(&database).await;
    emit(&mut connection, &event("b")).await.unwrap();
    let batch = [event("c"), event("b"), event("a"), event("c")];
    assert_eq!(emit_all(&mut connection, &batch).await.unwrap(), [true, false, true, false]);
    let mut ids = waiting(&store).await;
    ids.sort();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(emit_all(&mut connection, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_batch_has_all_that_its_events_have() {
    let database = Database::new().await;
    let store = database.open().await;
    emit_all(&mut connect(&database).await, &[full_event("a")]).await.unwrap();
    assert_full(&store).await;
}

#[tokio::test]
async fn an_event_is_cancelled_once() {
    let database = Database::new().await;
    let mut connection = connect(&database).await;
    assert!(cancel(&mut connection, "a", "sold out").await.unwrap());
    assert!(!cancel(&mut connection, "a", "again").await.unwrap());
    assert_eq!(database.count("SELECT count(*) FROM event_cancel WHERE reason = 'sold out'").await, 1);
    let error = cancel(&mut connection, "", "why").await.unwrap_err();
    assert!(matches!(error, Error::Invalid { field: "event_id", .. }), "{error}");
}

#[tokio::test]
async fn an_error_of_the_database_says_what_happened() {
    let database = Database::empty().await;
    let error = emit(&mut connect(&database).await, &event("a")).await.unwrap_err();
    assert!(error.to_string().contains("\"campanile\" does not exist"), "{error}");
}
