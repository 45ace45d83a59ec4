//! Tests producers in other processes, which write to the file directly.

use std::sync::Arc;
use std::time::Duration;

use campanile_domain::channel::PerChannel;
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::{Cursor, Page, Summary};
use campanile_domain::id::{EventId, EventSeq, UserTypeName};
use campanile_domain::rules::Reach;
use rusqlite::Connection;

use super::{Folder, count};
use crate::sqlite::{Clock, Sqlite};
use crate::{
    Claim, EventFilter, FanOutCommit, FanOutStep, FanOutStore, RetainStore, Store, TraceFilter, TraceStore,
};

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
    assert!(store.claim_events(Claim::New { limit: 10 }).await.unwrap().is_none(), "it is not committed yet");
    transaction.commit().unwrap();
    let claim = store.claim_events(Claim::New { limit: 10 }).await.unwrap().unwrap();
    assert_eq!(claim.events()[0].event.event_id.as_str(), "a");
}

#[test]
fn bad_events_are_refused() {
    let folder = Folder::new();
    let _store = folder.open();
    let producer = folder.connect();
    let too_long = format!("'{}'", "x".repeat(201));
    let too_large = format!("'{{\"x\": \"{}\"}}'", "x".repeat(65_536));
    let deeper_than_sqlite_reads = format!("'{{\"x\": {}{}}}'", "[".repeat(2_000), "]".repeat(2_000));
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
        ("payload", &deeper_than_sqlite_reads),
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
    let claim = store.claim_events(Claim::New { limit: 100 }).await.unwrap().unwrap();
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
    // For both claims, the first event can't be read.
    for claim in [Claim::Continuing { after: EventSeq::default() }, Claim::New { limit: 1 }] {
        let claim = store.claim_events(claim).await.unwrap().unwrap();
        assert_eq!((claim.events().len(), claim.unreadable()), (0, 1));
    }
    let claim = store.claim_events(Claim::New { limit: 10 }).await.unwrap().unwrap();
    let ids: Vec<&str> = claim.events().iter().map(|claimed| claimed.event.event_id.as_str()).collect();
    assert_eq!((ids, claim.unreadable()), (vec!["before", "after"], 1));
    assert_eq!(count(&producer, "SELECT count(*) FROM event_outbox WHERE status = 'FAILED'"), 3);
    assert_eq!(count(&producer, "SELECT count(*) FROM dead_letter WHERE reason = 'UNREADABLE'"), 3);
    let listed = store.search_events(EventFilter { limit: 10, ..EventFilter::default() }).await.unwrap();
    assert_eq!(listed.items.len(), 5);
    let id = EventId::stored("binary payload");
    let trace = store.trace(&id, TraceFilter { limit: 10, ..TraceFilter::default() }).await.unwrap().unwrap();
    assert_eq!(trace.dead_letters.len(), 1);
    assert!(trace.event.row.last_error.unwrap().starts_with("UNREADABLE: "));
}

#[tokio::test]
async fn an_event_that_can_not_be_read_is_forgotten_but_for_its_id() {
    let (folder, clock) = (Folder::new(), Clock::default());
    let store = Sqlite::open_with_clock(&folder.database(), clock.clone()).unwrap();
    let producer = folder.connect();
    insert(&producer, &[("event_id", "CAST(x'62ff64' AS TEXT)")]).unwrap();
    insert(&producer, &[("payload", "CAST(x'7b2278223a22ff227d' AS TEXT)")]).unwrap();
    assert_eq!(store.claim_events(Claim::New { limit: 10 }).await.unwrap().unwrap().unreadable(), 2);
    clock.advance(Duration::from_hours(2));
    assert_eq!(store.retain(store.now().await.unwrap(), EventSeq::default(), 100).await.unwrap().next, None);
    assert_eq!(count(&producer, "SELECT count(*) FROM event_outbox"), 0);
    let kept = "SELECT count(*) FROM processed_event WHERE body_hash = '' AND status = 'FAILED'";
    assert_eq!(count(&producer, kept), 2);
}

#[tokio::test]
async fn moments_that_no_calendar_has_fail_their_event() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    let moments = [
        "2026-02-30",
        "2026-01-21 24:00",
        "2026-01-21T24:00:00Z",
        "0000-06-01",
        "0000-06-01T00:00:00.000Z",
        "9999-12-31",
    ];
    for (n, moment) in moments.iter().enumerate() {
        insert(&producer, &[("event_id", &n.to_string()), ("occurred_at", &format!("'{moment}'"))]).unwrap();
    }
    let claim = store.claim_events(Claim::New { limit: 10 }).await.unwrap().unwrap();
    assert_eq!((claim.events().len(), claim.unreadable()), (0, moments.len() as u64));
    let named = "SELECT count(*) FROM event_outbox WHERE last_error LIKE 'UNREADABLE: column occurred_at %'";
    assert_eq!(count(&producer, named), 6);
}

/// Inserts an event whose first recipient was notified already, with this cursor.
fn begun(producer: &Connection, cursor: &str) {
    insert(producer, &[("fan_out_cursor", cursor)]).unwrap();
    producer
        .execute_batch(
            "INSERT INTO processed_event (event_id, body_hash, status, recipients, sends, instance, created_at)
             VALUES ('a', 'hash', 'PROCESSING', 1, 1, 'test', '2026-01-21T10:15:30.000Z')",
        )
        .unwrap();
}

#[tokio::test]
async fn a_cursor_that_can_not_be_read_leaves_what_was_written() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    begun(&producer, "'nonsense'");
    let claim = store.claim_events(Claim::Continuing { after: EventSeq::default() }).await.unwrap().unwrap();
    assert_eq!((claim.events().len(), claim.unreadable()), (0, 1));
    let published = "SELECT count(*) FROM event_outbox
                     WHERE status = 'PUBLISHED' AND published_at IS NOT NULL AND last_error LIKE 'UNREADABLE: %'";
    assert_eq!(count(&producer, published), 1);
    let kept = "SELECT count(*) FROM processed_event WHERE status = 'SUCCESS' AND recipients = 1";
    assert_eq!(count(&producer, kept), 1);
    assert_eq!(count(&producer, "SELECT count(*) FROM dead_letter WHERE reason = 'UNREADABLE'"), 1);
}

#[tokio::test]
async fn a_cursor_that_another_release_wrote_in_other_words_can_be_moved() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    let mut cursor = serde_json::to_value(Cursor::default()).unwrap();
    cursor["summary"]["recipients"] = 1.into();
    cursor["new"] = "field".into();
    begun(&producer, &format!("'{cursor:#}'"));
    for step in [Step::Continues(Cursor::default()), Step::Finished(Summary::default())] {
        let claim =
            store.claim_events(Claim::Continuing { after: EventSeq::default() }).await.unwrap().unwrap();
        let claimed = &claim.events()[0];
        let step = FanOutStep {
            seq: claimed.seq,
            event: Arc::clone(&claimed.event),
            body_hash: claimed.event.body_hash(),
            cursor_before: claimed.cursor.clone(),
            decisions: None,
            entities: Vec::new(),
            step,
        };
        let commit = FanOutCommit {
            instance: "test".to_owned(),
            steps: vec![step],
            chunks: Vec::new(),
            failed_rows: Vec::new(),
            lease: Duration::from_mins(1),
        };
        claim.commit(commit).await.unwrap();
    }
    assert_eq!(count(&producer, "SELECT count(*) FROM event_outbox WHERE status = 'PROCESSED'"), 1);
}

#[tokio::test]
async fn a_recipient_with_binary_data_hides_nobody() {
    let folder = Folder::new();
    let store = folder.open();
    let producer = folder.connect();
    producer
        .execute_batch(
            "INSERT INTO recipient (user_type, user_id, email, phone, time_zone, push_tokens)
             VALUES ('CUSTOMER', '1', 'a@b', '+39', NULL, '[]'),
                    ('CUSTOMER', '2', 'a@b', x'ff', x'ff', x'ff'),
                    ('CUSTOMER', '3', CAST(x'61ff' AS TEXT), '+39', '', ''),
                    ('CUSTOMER', CAST(x'34ff' AS TEXT), 'a@b', '+39', NULL, '[]')",
        )
        .unwrap();
    insert(&producer, &[]).unwrap();
    let mut claim = store.claim_events(Claim::New { limit: 1 }).await.unwrap().unwrap();
    let reach = Reach::Everybody(UserTypeName::stored("CUSTOMER"));
    let page = Page {
        reach,
        roles: None,
        after: None,
        limit: 10,
        channels: PerChannel::default(),
        default_webhook: None,
    };
    let found = claim.candidates(vec![page]).await.unwrap().remove(0);
    let known: Vec<_> =
        found.iter().map(|c| (c.recipient.email.is_some(), c.recipient.phone.is_some())).collect();
    assert_eq!(known, [(true, true), (true, false), (false, true), (true, true)]);
}
