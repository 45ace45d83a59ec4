//! Tests that rows can be shown although a user damaged them by hand, in ways that only SQLite stores.

use campanile_domain::id::EventId;
use serde_json::json;

use super::Folder;
use crate::{
    DeadLetterFilter, DeadLetterStore, EventFilter, SendAdminStore, SendFilter, TraceFilter, TraceStore,
};

const ROWS: &str = "
    PRAGMA ignore_check_constraints = ON;
    INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, priority, status,
                              retry_count, occurred_at, created_at)
    VALUES ('a', CAST(x'62ff64' AS TEXT), 'ORDER', '7', '{broken', 'URGENT', 'LOST', 'often', '2026-01-21 10:15',
            'yesterday');
    INSERT INTO processed_event (event_id, body_hash, status, counts, instance, created_at)
    VALUES ('a', '', 'LOST', '{broken', CAST(x'ff' AS TEXT), 'today');
    INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address, title,
                        body, priority, audience, shared_read, queue, created_at)
    VALUES ('no id', 'FAX', 'a', 'CUSTOMER', '42', '', CAST(x'61ff' AS TEXT), '', 'URGENT', '', 'maybe', '', 'today');
    INSERT INTO notification (id, event_id, event_type, user_type, user_id, title, body, properties, priority,
                              shared_read, created_at)
    VALUES ('no id', 'a', '', 'CUSTOMER', '42', x'61ff', '', '{broken', 'URGENT', 1, 'today');
    INSERT INTO send (notification_id, channel, recipient_address, status, attempt_count, created_at, sent_at)
    VALUES ('no id', 'FAX', CAST(x'61ff' AS TEXT), 'LOST', 'many', 'today', 'soon');
    INSERT INTO send_attempt (notification_id, channel, at, outcome, error, duration_ms)
    VALUES ('no id', 'FAX', 'today', 'LOST', CAST(x'61ff' AS TEXT), 'long');
    INSERT INTO captured_message (event_id, user_type, user_id, channel, address, title, body, at)
    VALUES ('a', 'CUSTOMER', '42', 'FAX', '', CAST(x'61ff' AS TEXT), '', 'today');
    INSERT INTO dead_letter (stage, event_id, channel, reason, error, created_at)
    VALUES ('send', 'a', 'FAX', '', CAST(x'61ff' AS TEXT), 'today');";

#[tokio::test]
async fn what_is_no_text_no_status_and_no_json_is_shown() {
    let folder = Folder::new();
    let store = folder.open();
    folder.connect().execute_batch(ROWS).unwrap();

    let all = TraceFilter { limit: 10, ..TraceFilter::default() };
    let trace = store.trace(&EventId::stored("a"), all).await.unwrap().unwrap();
    assert!(trace.event.event.is_none(), "it can't be decided");
    let event = json!(trace.event);
    assert_eq!((&event["event_type"], &event["payload"]), (&json!("b\u{fffd}d"), &json!("{broken")));
    assert_eq!((&event["status"], &event["priority"]), (&json!("LOST"), &json!("URGENT")));
    assert_eq!((&event["retry_count"], &event["created_at"]), (&json!("often"), &json!("yesterday")));
    assert_eq!(event["occurred_at"], "2026-01-21 10:15");
    let processed = json!(trace.processed);
    assert_eq!((&processed["status"], &processed["counts"]), (&json!("LOST"), &json!("{broken")));
    let outbox = json!(trace.outbox[0]);
    assert_eq!((&outbox["id"], &outbox["title"]), (&json!("no id:FAX"), &json!("a\u{fffd}")));
    assert_eq!((&outbox["channel"], &outbox["shared_read"]), (&json!("FAX"), &json!("maybe")));
    let notification = json!(trace.notifications[0]);
    assert_eq!((&notification["id"], &notification["properties"]), (&json!("no id"), &json!("{broken")));
    assert_eq!(notification["shared_read"], true);
    let send = json!(trace.sends[0]);
    assert_eq!((&send["status"], &send["attempt_count"]), (&json!("LOST"), &json!("many")));
    assert_eq!((&send["sent_at"], &send["stages"]["settle"]["at"]), (&json!("soon"), &json!("soon")));
    let attempt = &send["attempts"][0];
    assert_eq!((&attempt["error"], &attempt["duration_ms"]), (&json!("a\u{fffd}"), &json!("long")));
    assert_eq!(json!(trace.dead_letters[0])["error"], "a\u{fffd}");

    let events = store.search_events(EventFilter { limit: 10, ..EventFilter::default() }).await.unwrap();
    assert_eq!(json!(events.items[0])["status"], "LOST");
    let sends = store.list_sends(SendFilter { limit: 10, ..SendFilter::default() }).await.unwrap();
    assert_eq!(json!(sends.items[0])["channel"], "FAX");
    let dead_letters = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    assert_eq!(json!(store.list_dead_letters(dead_letters).await.unwrap()[0])["channel"], "FAX");
    assert_eq!(json!(store.list_captured(None, 0, 10).await.unwrap()[0])["title"], "a\u{fffd}");
}
