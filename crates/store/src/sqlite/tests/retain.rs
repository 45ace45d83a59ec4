//! Tests how many old events one sweep of retention examines.

use campanile_domain::id::EventSeq;
use campanile_domain::time::Timestamp;

use super::{Folder, count};
use crate::RetainStore;

#[tokio::test]
async fn a_sweep_goes_on_behind_many_events_that_stay_and_ends_at_many_young_ones() {
    let folder = Folder::new();
    let store = folder.open();
    let connection = folder.connect();
    let insert = |events: usize, status: &str, created_at: &str| {
        let sql = format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events})
             INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, status, created_at)
             SELECT '{status} ' || i || ' {created_at}', 'TYPE', 'ORDER', '7', '{status}', '{created_at}' FROM n"
        );
        connection.execute_batch(&sql).unwrap();
    };
    let before: Timestamp = "2026-01-21T10:15:30Z".parse().unwrap();
    let (old, young) = ("2001-01-01T00:00:00.000Z", "9000-01-01T00:00:00.000Z");
    insert(1_500, "PENDING", old);
    insert(3, "FAILED", old);
    insert(5, "FAILED", young);
    insert(2, "PROCESSED", old);
    let mut calls = Vec::new();
    let mut after = Some(EventSeq::default());
    while let Some(position) = after {
        let retained = store.retain(before, position, 100).await.unwrap();
        calls.push(retained.rows);
        after = retained.next;
    }
    assert_eq!(calls, [0, 5]);
    assert_eq!(count(&connection, "SELECT count(*) FROM event_outbox"), 1_505);
    connection.execute_batch("DELETE FROM event_outbox").unwrap();
    insert(2_000, "PROCESSED", young);
    assert_eq!(
        store.retain(before, EventSeq::default(), 100).await.unwrap().next,
        None,
        "nobody looks at all of them each time"
    );
}
