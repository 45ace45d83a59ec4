//! Producers that write by SQL, as business services do, and the ledger: what they committed compared with what was
//! captured.

use std::collections::BTreeMap;

use campanile_store::postgres::test_database::Database;

use super::{Home, Server, until};

const CHANNELS: [&str; 3] = ["EMAIL", "PUSH", "SMS"];

pub fn database(home: &Home) -> &Database {
    home.database.as_ref().expect("the instances share a database")
}

/// Plain inserts, in transactions of their own; every fifth rolls back. Returns the committed ids.
pub async fn produce(home: &Home, prefix: &str, transactions: usize) -> Vec<String> {
    const EVENTS: usize = 20;
    let producer = database(home).connect().await;
    let mut committed = Vec::new();
    for transaction in 0..transactions {
        let ids: Vec<String> = (0..EVENTS).map(|n| format!("{prefix}-{transaction}-{n}")).collect();
        let rows: Vec<String> = ids
            .iter()
            .map(|id| {
                format!("('{id}', 'RESERVATION_REQUESTED', 'RESTAURANT', '5', '{{\"guest\": \"Ada\"}}')")
            })
            .collect();
        let end = if transaction % 5 == 4 { "ROLLBACK" } else { "COMMIT" };
        let written = producer
            .batch_execute(&format!(
                "BEGIN; INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, \
                 payload) VALUES {}; {end}",
                rows.join(", ")
            ))
            .await;
        written.expect("the database is there");
        if end == "COMMIT" {
            committed.extend(ids);
        }
    }
    committed
}

/// Asserts that everything committed arrived once, and nothing else did.
pub async fn check_ledger(home: &Home, server: &Server, events: &[String]) {
    let open = "SELECT count(*) FROM event_outbox WHERE status <> 'PROCESSED'";
    let under_way = "SELECT count(*) FROM notification_channel_send WHERE status <> 'SENT'";
    let client = database(home).connect().await;
    until("every event is processed and every send sent", async || {
        let mut left = 0i64;
        for sql in [open, under_way] {
            left += client.query_one(sql, &[]).await.ok()?.get::<_, i64>(0);
        }
        (left == 0).then_some(())
    })
    .await;
    let expected: BTreeMap<String, u32> = events
        .iter()
        .flat_map(|id| {
            (1..=3).flat_map(move |u| CHANNELS.map(|c| (format!("{id}/RESTAURANT_USER {u}/{c}"), 1)))
        })
        .collect();
    let captured = server.captured().await;
    let lost: Vec<_> = expected.keys().filter(|key| !captured.contains_key(*key)).take(5).collect();
    let wrong: Vec<_> = captured.iter().filter(|(key, n)| expected.get(*key) != Some(n)).take(5).collect();
    assert!(lost.is_empty() && wrong.is_empty(), "lost: {lost:?}, twice or uncalled for: {wrong:?}");
    let dead_letters =
        client.query_one("SELECT count(*) FROM dead_letter", &[]).await.expect("it can be asked");
    assert_eq!(dead_letters.get::<_, i64>(0), 0);
}
