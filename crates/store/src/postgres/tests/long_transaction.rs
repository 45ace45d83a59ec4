//! Tests queues beside a transaction that stays open for a long time, such as a backup. Meanwhile PostgreSQL can't
//! remove anything, and a queue keeps all rows that were ever claimed from it.

use std::sync::Arc;

use campanile_domain::event::transition::Step;
use campanile_testkit::until;

use super::{event, ids};
use crate::Claim;
use crate::conformance::Fixture;
use crate::conformance::setup::{step_of, summary};
use crate::postgres::statement;
use crate::postgres::test_database::Database;

const NEW_EVENTS: Claim = Claim::New { limit: 10 };
/// The number of events that were claimed before. Each takes more than an eighth of a page.
const CLAIMED_EVENTS: i64 = 2_000;

/// The minimum number of pages that a full scan reads: the pages of all claimed events.
const FULL_SCAN_BLOCKS: i64 = CLAIMED_EVENTS / 8;

/// The number of claims in quick succession, so that few of them are full scans.
const CLAIMS: i64 = 10;

/// Selects the number of pages that claims of new events have read so far. The statement is found by its first line.
fn blocks_read_sql() -> String {
    let first_line = statement::CLAIM_NEW.lines().next().unwrap_or_default();
    format!(
        "SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint
         FROM public.pg_stat_statements JOIN pg_database d ON d.oid = dbid
         WHERE d.datname = current_database() AND starts_with(query, '{first_line}')"
    )
}

#[tokio::test]
async fn claims_do_not_walk_through_what_was_claimed_and_find_what_is_committed_late() {
    let database = Database::new().await;
    let store = Arc::new(database.open().await);
    let (reader, mut producer) = (database.connect().await, database.connect().await);
    let fixture = Fixture { store, test_database: Box::new(database) };
    fixture.execute("CREATE EXTENSION pg_stat_statements SCHEMA public").await;
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM event_outbox")
        .await
        .expect("it reads");
    let insert =
        "INSERT INTO campanile.event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)";
    let late = producer.transaction().await.expect("it begins");
    late.batch_execute(&format!("{insert} VALUES ('late', 'T', 'T', '1', '{{}}')"))
        .await
        .expect("it is written");
    fixture
        .execute(&format!(
            "{insert} SELECT 'gone-' || n, 'T', 'T', '1', json_build_object('a', repeat('a', 1000))
            FROM generate_series(1, {CLAIMED_EVENTS}) AS n;
             UPDATE campanile.event_outbox SET status = 'PROCESSED'"
        ))
        .await;
    fixture.accept(&[event("last")]).await;
    let claim = fixture.try_claim(NEW_EVENTS).await.expect("it waits");
    let steps = claim.events().iter().map(|event| step_of(event, Step::Finished(summary(0)))).collect();
    fixture.commit(claim, steps, Vec::new()).await;
    assert!(
        fixture.count(&blocks_read_sql()).await > FULL_SCAN_BLOCKS,
        "the first claim begins at the start"
    );

    let blocks_read = async || {
        let before = fixture.count(&blocks_read_sql()).await;
        for _ in 0..CLAIMS {
            assert!(fixture.try_claim(NEW_EVENTS).await.is_none());
        }
        fixture.count(&blocks_read_sql()).await - before
    };
    until("claims pass them", async || (blocks_read().await < CLAIMS / 2 * FULL_SCAN_BLOCKS).then_some(()))
        .await;

    late.commit().await.expect("it is committed");
    let claim = until("the late one is claimed", async || fixture.try_claim(NEW_EVENTS).await).await;
    assert_eq!(ids(&*claim), ["late"]);
}
