//! Producers in other processes, which write into the file as they like.

use campanile_domain::id::EventId;
use rusqlite::Connection;

use super::{Folder, count};
use crate::{Claim, EventFilter, FanOutStore, TraceFilter, TraceStore};

/// Inserts an event with these SQL expressions in its columns.
fn insert(connection: &Connection, columns: &[(&str, &str)]) -> Result<usize, rusqlite::Error> {
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
    connection.execute(
        &format!("INSERT INTO event_outbox ({}) VALUES ({})", names.join(", "), values.join(", ")),
        [],
    )
}

#[tokio::test]
async fn a_plain_insert_beside_the_engine_is_claimed() {
    let folder = Folder::new();
    let store = folder.open();
    let mut producer = folder.connect();
    let transaction = producer.transaction().unwrap();
    insert(&transaction, &[]).unwrap();
    assert!(
        store.claim_events(Claim::Fresh { limit: 10 }).await.unwrap().is_none(),
        "it is not committed yet"
    );
    transaction.commit().unwrap();
    let claim = store.claim_events(Claim::Fresh { limit: 10 }).await.unwrap().unwrap();
    assert_eq!(claim.events()[0].event.event_id.as_str(), "a");
}

#[test]
fn bad_events_are_refused() {
    let folder = Folder::new();
    let _store = folder.open();
    let producer = folder.connect();
    let too_long = format!("'{}'", "x".repeat(201));
    let too_large = format!("'{{\"x\": \"{}\"}}'", "x".repeat(65_536));
    let bad = [
        ("event_id", "''"),
        ("event_id", too_long.as_str()),
        ("event_id", "'a' || char(0) || 'b'"),
        ("event_id", "x'61'"),
        ("event_id", "NULL"),
        ("event_type", "''"),
        ("event_type", too_long.as_str()),
        ("event_type", "'a' || char(0)"),
        ("aggregate_type", "x'61'"),
        ("aggregate_id", "''"),
        ("aggregate_id", "x'61'"),
        ("payload", "'[]'"),
        ("payload", "'\"text\"'"),
        ("payload", "'7'"),
        ("payload", "'{'"),
        ("payload", "'{} {}'"),
        ("payload", "'{a: 1}'"),
        ("payload", "'{}' || char(0) || 'x'"),
        ("payload", "x'7b7d'"),
        ("payload", "NULL"),
        ("payload", too_large.as_str()),
        ("priority", "'URGENT'"),
        ("priority", "'high'"),
        ("priority", "1"),
        ("status", "'DONE'"),
        ("occurred_at", "'yesterday'"),
        ("occurred_at", "'10:15'"),
        ("occurred_at", "2460000.5"),
    ];
    for (column, value) in bad {
        let refused = insert(&producer, &[(column, value)]);
        assert!(refused.is_err(), "{column} = {}", value.chars().take(40).collect::<String>());
    }
    assert_eq!(count(&producer, "SELECT count(*) FROM event_outbox"), 0);
}

#[test]
fn events_at_the_limits_are_taken() {
    let folder = Folder::new();
    let _store = folder.open();
    let producer = folder.connect();
    let long = format!("'{}'", "ü".repeat(200));
    let large = format!("'{{\"x\": \"{}\"}}'", "x".repeat(65_536 - 9));
    insert(&producer, &[("event_id", &long), ("payload", &large)]).unwrap();
    insert(&producer, &[("event_id", "5"), ("aggregate_id", "42"), ("priority", "NULL")]).unwrap();
    assert_eq!(count(&producer, "SELECT count(*) FROM event_outbox WHERE typeof(aggregate_id) = 'text'"), 2);
}

#[tokio::test]
async fn times_may_be_written_as_sqlite_understands_them() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    let forms = [
        ("'2026-01-21T10:15:30.000Z'", "2026-01-21T10:15:30Z"),
        ("'2026-01-21T10:15:30Z'", "2026-01-21T10:15:30Z"),
        ("'2026-01-21T11:15:30+01:00'", "2026-01-21T10:15:30Z"),
        ("'2026-01-21 11:15:30+01:00'", "2026-01-21T10:15:30Z"),
        ("'2026-01-21 10:15:30'", "2026-01-21T10:15:30Z"),
        ("'2026-01-21T10:15:30'", "2026-01-21T10:15:30Z"),
        ("'2026-01-21 10:15:30.5'", "2026-01-21T10:15:30.5Z"),
        ("'2026-01-21 10:15'", "2026-01-21T10:15:00Z"),
        ("'2026-01-21'", "2026-01-21T00:00:00Z"),
        ("datetime('2026-01-21T10:15:30')", "2026-01-21T10:15:30Z"),
    ];
    for (n, (form, _)) in forms.iter().enumerate() {
        insert(&producer, &[("event_id", &n.to_string()), ("occurred_at", form)]).unwrap();
    }
    let claim = store.claim_events(Claim::Fresh { limit: 100 }).await.unwrap().unwrap();
    for (claimed, (form, expected)) in claim.events().iter().zip(forms) {
        assert_eq!(claimed.event.occurred_at, Some(expected.parse().unwrap()), "{form}");
    }
}

#[tokio::test]
async fn an_event_that_can_not_be_read_fails_alone() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    insert(&producer, &[("event_id", "'before'")]).unwrap();
    insert(&producer, &[("event_id", "CAST(x'62ff64' AS TEXT)"), ("priority", "'HIGH'")]).unwrap();
    insert(
        &producer,
        &[("event_id", "'binary payload'"), ("payload", "CAST(x'7b2278223a22ff227d' AS TEXT)")],
    )
    .unwrap();
    insert(&producer, &[("event_id", "'broken cursor'"), ("fan_out_cursor", "'nonsense'")]).unwrap();
    insert(&producer, &[("event_id", "'after'")]).unwrap();
    assert!(store.claim_events(Claim::Unfinished).await.unwrap().is_none());
    assert!(
        store.claim_events(Claim::Fresh { limit: 1 }).await.unwrap().is_none(),
        "the first one can't be read"
    );
    let claim = store.claim_events(Claim::Fresh { limit: 10 }).await.unwrap().unwrap();
    let ids: Vec<&str> = claim.events().iter().map(|claimed| claimed.event.event_id.as_str()).collect();
    assert_eq!(ids, ["before", "after"]);
    assert_eq!(count(&producer, "SELECT count(*) FROM event_outbox WHERE status = 'FAILED'"), 3);
    assert_eq!(count(&producer, "SELECT count(*) FROM dead_letter WHERE reason = 'UNREADABLE'"), 3);
    let listed = store.list_events(EventFilter { limit: 10, ..EventFilter::default() }).await.unwrap();
    assert_eq!(listed.len(), 5);
    let id = EventId::stored("binary payload");
    let trace = store.trace(&id, TraceFilter { limit: 10, ..TraceFilter::default() }).await.unwrap().unwrap();
    assert_eq!(trace.dead_letters.len(), 1);
    assert!(trace.event["last_error"].as_str().unwrap().starts_with("UNREADABLE: "));
}

#[tokio::test]
async fn deeply_nested_payloads_stop_nobody() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    let deep = format!("'{{\"x\": {}{}}}'", "[".repeat(500), "]".repeat(500));
    insert(&producer, &[("event_id", "'deep'"), ("payload", &deep)]).unwrap();
    insert(&producer, &[("event_id", "'after'"), ("payload", "'{\"n\": 1e999}'")]).unwrap();
    let claim = store.claim_events(Claim::Fresh { limit: 10 }).await.unwrap().unwrap();
    assert_eq!(claim.events().len(), 2);
    assert!(claim.events().iter().all(|claimed| !claimed.event.document()["event_id"].is_null()));
    for claimed in claim.events() {
        let filter = TraceFilter { limit: 10, ..TraceFilter::default() };
        assert!(store.trace(&claimed.event.event_id, filter).await.unwrap().is_some());
    }
}
