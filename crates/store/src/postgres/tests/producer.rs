//! Tests producers: business services that write events together with their own data, and have no other privileges.

use std::future::poll_fn;

use campanile_testkit::until;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::guide::{PRODUCERS, block};
use super::ids;
use super::role::Role;
use crate::conformance::TestDatabase;
use crate::postgres::statement;
use crate::postgres::test_database::Database;
use crate::{Claim, FanOutStore, Signal, Store};

const NEW_EVENTS: Claim = Claim::New { limit: 10 };
const COLUMNS: [&str; 7] =
    ["event_id", "event_type", "aggregate_type", "aggregate_id", "payload", "priority", "occurred_at"];

/// An insert with these SQL expressions in its columns.
fn insert(columns: &[(&str, &str)]) -> String {
    let mut event = vec![
        ("event_id", "'a'"),
        ("event_type", "'ORDER_CREATED'"),
        ("aggregate_type", "'ORDER'"),
        ("aggregate_id", "'7'"),
        ("payload", "'{}'"),
    ];
    event.retain(|(name, _)| !columns.iter().any(|(given, _)| given == name));
    event.extend_from_slice(columns);
    let (names, values): (Vec<&str>, Vec<&str>) = event.into_iter().unzip();
    format!("INSERT INTO campanile.event_outbox ({}) VALUES ({})", names.join(", "), values.join(", "))
}

const EMIT: &str = "SELECT campanile.emit('a', 'ORDER_CREATED', 'ORDER', '7', '{\"total\": 12}')";

async fn granted(database: &Database) -> Role {
    let role = Role::new(database, "shop").await;
    let grants = block(PRODUCERS, "Grants of a producer").replace("TO shop;", &format!("TO {};", role.name));
    super::connect(&database.url).await.batch_execute(&grants).await.unwrap();
    role
}

async fn code(client: &Client, sql: &str) -> Option<SqlState> {
    client.batch_execute(sql).await.err().map(|error| error.code().expect("the server answered").clone())
}

async fn refuses(client: &Client, sql: &str) {
    assert_eq!(code(client, sql).await, Some(SqlState::INSUFFICIENT_PRIVILEGE), "{sql}");
}

/// A refused write to a view may also be reported as impossible.
fn is_refusal(code: &SqlState) -> bool {
    [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        SqlState::WRONG_OBJECT_TYPE,
    ]
    .contains(code)
}

async fn is_new(client: &Client, sql: &str) -> bool {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_event_is_there_with_the_data_of_its_transaction_or_not_at_all() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut client = super::connect(&database.url).await;
    client.batch_execute("CREATE TABLE orders (id bigint PRIMARY KEY)").await.unwrap();
    for ends in ["ROLLBACK", "COMMIT"] {
        client.batch_execute("BEGIN; INSERT INTO orders VALUES (7)").await.unwrap();
        client.batch_execute(&insert(&[])).await.unwrap();
        assert!(store.claim_events(NEW_EVENTS).await.unwrap().is_none(), "it is not committed yet");
        client.batch_execute(ends).await.unwrap();
        assert_eq!(store.claim_events(NEW_EVENTS).await.unwrap().is_some(), ends == "COMMIT");
    }
    let transaction = client.transaction().await.unwrap();
    assert_eq!(transaction.query("SELECT FROM orders", &[]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn emit_says_whether_the_event_is_new() {
    let database = Database::new().await;
    let store = database.open().await;
    let client = super::connect(&database.url).await;
    client.batch_execute(&format!("BEGIN; {EMIT}; ROLLBACK")).await.unwrap();
    assert!(is_new(&client, EMIT).await);
    assert!(!is_new(&client, EMIT).await);
    let with_all = "SELECT campanile.emit('b', 'ORDER_CREATED', 'ORDER', '8', '{}', priority => 'HIGH',
                                          occurred_at => '2026-01-21 10:15:30+00')";
    assert!(is_new(&client, with_all).await);
    let claim = store.claim_events(NEW_EVENTS).await.unwrap().unwrap();
    assert_eq!(ids(&*claim), ["b", "a"]);
    assert_eq!(claim.events()[0].event.occurred_at, Some("2026-01-21T10:15:30Z".parse().unwrap()));
    assert_eq!(claim.events()[1].event.document()["payload"]["total"], 12);
}

#[tokio::test]
async fn emit_knows_an_id_whose_event_is_long_gone() {
    let database = Database::new().await;
    let client = database.connect().await;
    let processed = "INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
                     VALUES ('a', 'hash', 'SUCCESS', 'test', now())";
    client.batch_execute(processed).await.unwrap();
    assert!(!is_new(&client, EMIT).await);
}

/// A client that listens, and the payloads that it receives.
async fn listening(database: &Database) -> (Client, UnboundedReceiver<String>) {
    let (listener, mut connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    let (sender, notifications) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                sender.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    listener.batch_execute("LISTEN campanile").await.unwrap();
    (listener, notifications)
}

#[tokio::test]
async fn a_transaction_notifies_once_and_only_when_it_commits() {
    let database = Database::new().await;
    let (listener, mut notifications) = listening(&database).await;
    let client = super::connect(&database.url).await;
    client.batch_execute(&format!("BEGIN; {EMIT}; ROLLBACK")).await.unwrap();
    client.batch_execute(&format!("BEGIN; {EMIT}; {}", EMIT.replace("'a'", "'b'"))).await.unwrap();
    listener.batch_execute("SELECT 1").await.unwrap();
    assert!(notifications.try_recv().is_err(), "nothing is committed yet");
    client.batch_execute("COMMIT").await.unwrap();
    client.batch_execute("NOTIFY campanile, 'the end'").await.unwrap();
    assert_eq!(
        (notifications.recv().await.unwrap(), notifications.recv().await.unwrap()),
        (String::new(), "the end".to_owned())
    );
}

#[tokio::test]
async fn an_engine_that_listens_is_woken() {
    let database = Database::new().await;
    let store = database.open().await;
    let mut signals = store.subscribe().unwrap();
    let listens = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query = 'LISTEN campanile'
                   AND state = 'idle'";
    until("there is a listener", async || (database.count(listens).await > 0).then_some(())).await;
    database.execute(EMIT).await;
    assert_eq!(signals.recv().await.unwrap(), Signal::Events);
}

#[tokio::test]
async fn who_polls_all_the_time_is_not_notified() {
    let database = Database::new().await;
    let (_listener, mut notifications) = listening(&database).await;
    let (suppressor, client) = (super::connect(&database.url).await, super::connect(&database.url).await);
    suppressor.batch_execute(&format!("BEGIN; {}", statement::LOCK_SUPPRESS_NOTIFY)).await.unwrap();
    assert!(is_new(&client, EMIT).await);
    suppressor.batch_execute("COMMIT; NOTIFY campanile, 'not any more'").await.unwrap();
    assert!(is_new(&client, &EMIT.replace("'a'", "'b'")).await);
    assert_eq!(
        (notifications.recv().await.unwrap(), notifications.recv().await.unwrap()),
        ("not any more".to_owned(), String::new())
    );
    let held = client.query_one(ADVISORY_LOCKS, &[]).await.unwrap();
    assert_eq!(held.get::<_, i64>(0), 0, "who asks whether it is held keeps nothing");
}

const ADVISORY_LOCKS: &str = "SELECT count(*) FROM pg_locks
     WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test]
async fn an_engine_says_as_long_as_it_polls_all_the_time() {
    let database = Database::new().await;
    let (store, other) = (database.open().await, database.open().await);
    let (suppressor, requested) = watch::channel(true);
    let suppressing = [store, other].map(|store| {
        let requested = requested.clone();
        tokio::spawn(async move {
            while *requested.borrow() {
                store.suppress_notify(requested.clone()).await.unwrap();
            }
        })
    });
    until("the lock is held", async || (database.count(ADVISORY_LOCKS).await > 0).then_some(())).await;
    suppressor.send_replace(false);
    for ended in suppressing {
        ended.await.unwrap();
    }
    assert_eq!(database.count(ADVISORY_LOCKS).await, 0);
}

#[tokio::test]
async fn a_granted_producer_emits_and_cancels() {
    let database = Database::new().await;
    let producer = granted(&database).await;
    let client = producer.connect().await;
    let all = [("event_id", "'b'"), ("priority", "'LOW'"), ("occurred_at", "now()")];
    client.batch_execute(&insert(&all)).await.unwrap();
    client.batch_execute(&format!("{} ON CONFLICT DO NOTHING", insert(&all))).await.unwrap();
    assert!(is_new(&client, EMIT).await);
    let cancel =
        "INSERT INTO campanile.event_cancel (event_id, reason) VALUES ('a', 'why') ON CONFLICT DO NOTHING";
    client.batch_execute(&format!("{cancel}; {cancel}")).await.unwrap();
    assert_eq!(database.count("SELECT count(*) FROM event_outbox").await, 2);
    assert_eq!(database.count("SELECT count(*) FROM event_cancel").await, 1);
    drop(client);
}

/// Every table and view with its columns, as (name, column).
async fn relations(database: &Database) -> Vec<(String, String)> {
    let sql = "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
               WHERE c.relnamespace = 'campanile'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm',
                   'f') AND NOT attisdropped";
    let rows = super::connect(&database.url).await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn a_granted_producer_reads_changes_and_deletes_nothing() {
    let database = Database::new().await;
    database.execute(&insert(&[])).await;
    let producer = granted(&database).await;
    let client = producer.connect().await;
    let relations = relations(&database).await;
    assert!(relations.iter().any(|(table, _)| table == "notification_outbox"), "views are among them");
    for (table, column) in &relations {
        refuses(&client, &format!("SELECT \"{column}\" FROM campanile.{table}")).await;
        refuses(&client, &format!("SELECT count(*) FROM campanile.{table}")).await;
        refuses(&client, &format!("COPY campanile.{table} (\"{column}\") TO STDOUT")).await;
        let change = format!("UPDATE campanile.{table} SET \"{column}\" = DEFAULT");
        let delete = format!("DELETE FROM campanile.{table}");
        let truncate = format!("TRUNCATE campanile.{table}");
        let lock = format!("DO 'BEGIN LOCK TABLE campanile.{table} IN ACCESS EXCLUSIVE MODE; END'");
        for sql in [&change, &delete, &truncate, &lock] {
            let code = code(&client, sql).await.unwrap_or_else(|| panic!("may {sql}"));
            assert!(is_refusal(&code), "{sql}: {code:?}");
        }
    }
    for sql in [
        "RETURNING event_id",
        "ON CONFLICT (event_id) DO NOTHING",
        "ON CONFLICT (event_id) DO UPDATE SET payload = '{}'",
    ] {
        refuses(&client, &format!("{} {sql}", insert(&[]))).await;
    }
}

#[tokio::test]
async fn a_granted_producer_writes_no_other_column() {
    let database = Database::new().await;
    let producer = granted(&database).await;
    let client = producer.connect().await;
    let mut allowed = 0;
    for (table, column) in relations(&database).await {
        let sql = format!("INSERT INTO campanile.{table} (\"{column}\") VALUES (DEFAULT)");
        let code = code(&client, &sql).await.unwrap_or_else(|| panic!("may {sql}"));
        let may = match table.as_str() {
            "event_outbox" => COLUMNS.contains(&column.as_str()),
            "event_cancel" => ["event_id", "reason"].contains(&column.as_str()),
            _ => false,
        };
        assert_eq!(is_refusal(&code), !may, "{sql}: {code:?}");
        allowed += usize::from(may);
    }
    assert_eq!(allowed, 9);
}

#[tokio::test]
async fn a_granted_producer_calls_nothing_but_emit() {
    let database = Database::new().await;
    let producer = granted(&database).await;
    let admin = super::connect(&database.url).await;
    let sql = "SELECT p.proname FROM pg_proc p
               WHERE p.pronamespace = 'campanile'::regnamespace AND has_function_privilege($1, p.oid, 'EXECUTE')
               ORDER BY 1";
    let callable = admin.query(sql, &[&producer.name]).await.unwrap();
    let callable: Vec<&str> = callable.iter().map(|row| row.get(0)).collect();
    assert_eq!(callable, ["emit", "now"], "the clock is everybody's");
    let sql = "SELECT count(*) FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
               WHERE c.relnamespace = 'campanile'::regnamespace
                 AND has_sequence_privilege($1, s.seqrelid, 'USAGE, SELECT, UPDATE')";
    assert_eq!(admin.query_one(sql, &[&producer.name]).await.unwrap().get::<_, i64>(0), 0);
    let client = producer.connect().await;
    refuses(&client, "CREATE TABLE campanile.mine (id int)").await;
    refuses(
        &client,
        "CREATE TRIGGER mine BEFORE INSERT ON campanile.event_outbox EXECUTE FUNCTION \
        campanile.rules_changed()",
    )
    .await;
    refuses(&client, "ALTER TABLE campanile.event_outbox DISABLE TRIGGER ALL").await;
    refuses(&client, "DROP TABLE campanile.event_outbox").await;
}

#[tokio::test]
async fn whoever_has_no_grants_emits_nothing() {
    let database = Database::new().await;
    let stranger = Role::new(&database, "stranger").await;
    let client = stranger.connect().await;
    refuses(&client, EMIT).await;
    refuses(&client, &insert(&[])).await;
    let usage = format!("GRANT USAGE ON SCHEMA campanile TO {}", stranger.name);
    super::connect(&database.url).await.batch_execute(&usage).await.unwrap();
    refuses(&client, EMIT).await;
    refuses(&client, &insert(&[])).await;
}

#[tokio::test]
async fn a_bad_event_is_refused_and_the_rest_of_the_transaction_goes_on() {
    let database = Database::new().await;
    let client = super::connect(&database.url).await;
    let too_long = format!("'{}'", "x".repeat(201));
    let too_large = format!("'{{\"x\": \"{}\"}}'", "x".repeat(65_536));
    let bad = [
        ("event_id", "''", SqlState::CHECK_VIOLATION),
        ("event_id", too_long.as_str(), SqlState::CHECK_VIOLATION),
        ("event_id", "NULL", SqlState::NOT_NULL_VIOLATION),
        ("event_type", "''", SqlState::CHECK_VIOLATION),
        ("event_type", too_long.as_str(), SqlState::CHECK_VIOLATION),
        ("aggregate_type", "''", SqlState::CHECK_VIOLATION),
        ("aggregate_id", "''", SqlState::CHECK_VIOLATION),
        ("aggregate_id", "NULL", SqlState::NOT_NULL_VIOLATION),
        ("payload", "'[]'", SqlState::CHECK_VIOLATION),
        ("payload", "'\"text\"'", SqlState::CHECK_VIOLATION),
        ("payload", "'7'", SqlState::CHECK_VIOLATION),
        ("payload", "'null'", SqlState::CHECK_VIOLATION),
        ("payload", "NULL", SqlState::NOT_NULL_VIOLATION),
        ("payload", "'{'", SqlState::INVALID_TEXT_REPRESENTATION),
        ("payload", too_large.as_str(), SqlState::CHECK_VIOLATION),
        ("priority", "'URGENT'", SqlState::CHECK_VIOLATION),
        ("priority", "'high'", SqlState::CHECK_VIOLATION),
        ("occurred_at", "'infinity'", SqlState::CHECK_VIOLATION),
        ("occurred_at", "'-infinity'", SqlState::CHECK_VIOLATION),
        ("occurred_at", "'10000-01-01'", SqlState::CHECK_VIOLATION),
    ];
    client
        .batch_execute("BEGIN; CREATE TABLE orders (id bigint); INSERT INTO orders VALUES (7)")
        .await
        .unwrap();
    for (column, value, expected) in bad {
        client.batch_execute("SAVEPOINT before_the_event").await.unwrap();
        let refused = client.batch_execute(&insert(&[(column, value)])).await.unwrap_err();
        let error = refused.as_db_error().unwrap();
        let named = error.constraint().or(error.column()).unwrap_or(error.message());
        let value: String = value.chars().take(20).collect();
        assert_eq!(error.code(), &expected, "{column} = {value}: {error}");
        assert!(named.contains(column) || column == "payload", "{column} = {value}: {named}");
        client.batch_execute("ROLLBACK TO before_the_event").await.unwrap();
    }
    client.batch_execute(&format!("{}; COMMIT", insert(&[]))).await.unwrap();
    assert_eq!(database.count("SELECT count(*) FROM event_outbox, public.orders").await, 1);
}

#[tokio::test]
async fn events_at_the_limits_are_taken() {
    let database = Database::new().await;
    let long = format!("'{}'", "ü".repeat(200));
    let large = format!("'{{\"x\": \"{}\"}}'", "x".repeat(65_536 - 9));
    database
        .execute(&insert(&[
            ("event_id", &long),
            ("payload", &large),
            ("occurred_at", "'0001-01-01 00:00+00'"),
        ]))
        .await;
    let store = database.open().await;
    assert_eq!(store.claim_events(NEW_EVENTS).await.unwrap().unwrap().events().len(), 1);
}

#[tokio::test]
async fn the_same_id_again_is_refused_or_left_alone() {
    let database = Database::new().await;
    let client = super::connect(&database.url).await;
    client.batch_execute(&insert(&[])).await.unwrap();
    assert_eq!(code(&client, &insert(&[])).await, Some(SqlState::UNIQUE_VIOLATION));
    let again = client.execute(&format!("{} ON CONFLICT DO NOTHING", insert(&[])), &[]).await;
    assert_eq!(again.unwrap(), 0);
}
