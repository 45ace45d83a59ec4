//! Tests that the most frequent updates are HOT, which means that they need no new entry in any index.

use std::time::Duration;

use campanile_domain::queue::Queue;
use campanile_domain::send::{OutcomeKind, SendState};
use campanile_testkit::until;

use super::{LEASE, QUEUE, event, fixture, received, rows};
use crate::conformance::Fixture;
use crate::{Capture, InstanceId, SendJob, Settlement};

/// Waits until `expected` updates of a table are counted. Returns how many of them were HOT. Servers report their
/// counts at the latest when a connection ends, so the store is dropped.
async fn updates(fixture: Fixture, table: &str, expected: i64) -> i64 {
    let Fixture { store, test_database } = fixture;
    drop(store);
    let known_updates_sql = format!("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = '{table}'");
    until("there are statistics", async || {
        (test_database.count(&known_updates_sql).await >= expected).then_some(())
    })
    .await;
    let hot = format!("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = '{table}'");
    test_database.count(&hot).await
}

fn sent(job: &SendJob, at: campanile_domain::time::Timestamp) -> Settlement {
    Settlement {
        job: job.clone(),
        state: SendState::Sent { external_id: Some("an id of the provider".to_owned()), at },
        done: Vec::new(),
        provider: "provider".to_owned(),
        error: None,
        outcome: OutcomeKind::Sent,
        history: job.history,
        duration: Duration::from_millis(5),
        attempted_at: Some(at),
        capture: Capture::None,
    }
}

#[tokio::test]
async fn settling_touches_no_index() {
    let fixture = fixture().await;
    let rows = rows("a", 500);
    fixture.published(&event("a"), &rows).await;
    let jobs = fixture.receive(&received(&rows)).await.jobs;
    let now = fixture.store.now().await.unwrap();
    for batch in jobs.chunks(100) {
        let outcomes = batch.iter().map(|job| sent(job, now)).collect();
        assert!(fixture.store.settle(outcomes, Vec::new(), InstanceId(1)).await.unwrap().lost.is_empty());
    }
    let hot = updates(fixture, "send", 500).await;
    assert!(hot >= 400, "{hot} of 500");
}

#[tokio::test]
async fn leasing_a_chunk_touches_no_index() {
    let fixture = fixture().await;
    for n in 0..20 {
        let id = n.to_string();
        fixture.fan_out(&event(&id), &rows(&id, 1), false).await;
    }
    for _ in 0..20 {
        fixture.store.claim_chunk(&Queue::named(QUEUE), LEASE).await.unwrap().unwrap();
    }
    let hot = updates(fixture, "publish_chunk", 20).await;
    assert!(hot >= 16, "{hot} of 20");
}
