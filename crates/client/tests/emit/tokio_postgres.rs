//! Emits over `tokio-postgres`.

use std::future::poll_fn;

use ::tokio_postgres::{AsyncMessage, Config, NoTls};
use campanile_client::tokio_postgres::{cancel, emit, emit_all};
use campanile_client::{Error, MAX_PAYLOAD_BYTES};
use campanile_store::conformance::TestDatabase;
use campanile_store::postgres::test_database::Database;
use serde_json::json;

use super::{assert_full, event, full_event, waiting};

#[tokio::test]
async fn an_event_is_there_when_the_transaction_commits() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut client = database.connect().await;
    let transaction = client.transaction().await.unwrap();
    assert!(emit(&transaction, &full_event("a")).await.unwrap());
    assert!(waiting(&store).await.is_empty());
    transaction.commit().await.unwrap();
    assert_full(&store).await;
}

#[tokio::test]
async fn a_commit_wakes_the_engine() {
    let database = Database::new().await;
    let config: Config = database.url.parse().unwrap();
    let (listener, mut connection) = config.connect(NoTls).await.unwrap();
    let received = tokio::spawn(async move {
        loop {
            if let AsyncMessage::Notification(received) =
                poll_fn(|context| connection.poll_message(context)).await.unwrap().unwrap()
            {
                return received;
            }
        }
    });
    listener.batch_execute("LISTEN campanile").await.unwrap();
    emit(&database.connect().await, &event("a")).await.unwrap();
    assert_eq!(received.await.unwrap().channel(), "campanile");
}

#[tokio::test]
async fn nothing_is_left_of_a_rollback() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut client = database.connect().await;
    let transaction = client.transaction().await.unwrap();
    emit(&transaction, &event("a")).await.unwrap();
    cancel(&transaction, "a", "why").await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(waiting(&store).await.is_empty());
    assert_eq!(database.count("SELECT count(*) FROM event_cancel").await, 0);
}

#[tokio::test]
async fn the_same_event_twice_is_one() {
    let database = Database::new().await;
    let store = database.open().await;
    let client = database.connect().await;
    assert!(emit(&client, &event("a")).await.unwrap());
    assert!(!emit(&client, &event("a")).await.unwrap());
    assert_eq!(waiting(&store).await, ["a"]);
}

#[tokio::test]
async fn an_event_that_was_processed_long_ago_is_not_new() {
    let database = Database::new().await;
    database
        .execute(
            "INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
             VALUES ('a', 'hash', 'SUCCESS', 'test', now())",
        )
        .await;
    assert!(!emit(&database.connect().await, &event("a")).await.unwrap());
}

#[tokio::test]
async fn a_batch_says_of_each_event_whether_it_is_new() {
    let database = Database::new().await;
    let store = database.open().await;
    let client = database.connect().await;
    emit(&client, &event("b")).await.unwrap();
    let batch = [event("c"), event("b"), event("a"), event("c")];
    assert_eq!(emit_all(&client, &batch).await.unwrap(), [true, false, true, false]);
    let mut ids = waiting(&store).await;
    ids.sort();
    assert_eq!(ids, ["a", "b", "c"]);
    assert!(emit_all(&client, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_batch_has_all_that_its_events_have() {
    let database = Database::new().await;
    let store = database.open().await;
    emit_all(&database.connect().await, &[full_event("a")]).await.unwrap();
    assert_full(&store).await;
}

#[tokio::test]
async fn batches_of_the_same_events_in_opposite_orders_do_not_stop_each_other() {
    let database = Database::new().await;
    let up: Vec<_> = (0..200).map(|n| event(&n.to_string())).collect();
    let down: Vec<_> = up.iter().rev().cloned().collect();
    let (one, other) = (database.connect().await, database.connect().await);
    let (one, other) = tokio::try_join!(emit_all(&one, &up), emit_all(&other, &down)).unwrap();
    let created = one.iter().chain(&other).filter(|created| **created).count();
    assert_eq!(created, 200);
}

#[tokio::test]
async fn the_largest_payload_is_taken() {
    let database = Database::new().await;
    // Each number takes three bytes, and the rest eight.
    let numbers = vec![7; (MAX_PAYLOAD_BYTES - 8) / 3];
    let largest = event("a").payload(&json!({ "n": numbers })).unwrap();
    assert!(emit(&database.connect().await, &largest).await.unwrap());
    let stored = "SELECT octet_length(payload::text)::bigint FROM event_outbox";
    assert!(database.count(stored).await > 65_530);
}

#[tokio::test]
async fn an_event_is_cancelled_once() {
    let database = Database::new().await;
    let client = database.connect().await;
    assert!(cancel(&client, "a", "sold out").await.unwrap());
    assert!(!cancel(&client, "a", "again").await.unwrap());
    assert_eq!(database.count("SELECT count(*) FROM event_cancel WHERE reason = 'sold out'").await, 1);
    let error = cancel(&client, "", "why").await.unwrap_err();
    assert!(matches!(error, Error::Invalid { field: "event_id", .. }), "{error}");
}

#[tokio::test]
async fn an_error_of_the_database_says_what_happened() {
    let database = Database::empty().await;
    let error = emit(&database.connect().await, &event("a")).await.unwrap_err();
    assert!(error.to_string().contains("\"campanile\" does not exist"), "{error}");
}
