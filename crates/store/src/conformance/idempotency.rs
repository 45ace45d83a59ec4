//! Checks idempotency keys: one request of several runs, and the others get its answer.

use std::time::Duration;

use super::Fixture;
use crate::{Begun, IdempotencyKey, StoredAnswer};

const LEASE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

fn key(caller: &str) -> IdempotencyKey {
    IdempotencyKey { caller: caller.to_owned(), key: "k".to_owned() }
}

fn answer(body: &str) -> StoredAnswer {
    StoredAnswer { status: 409, content_type: "application/json".to_owned(), body: body.to_owned() }
}

async fn begin(fixture: &Fixture, caller: &str, hash: &str) -> Begun {
    fixture.store.begin_request(&key(caller), hash, LEASE).await.expect("the database is there")
}

async fn started(fixture: &Fixture, caller: &str, hash: &str) -> i64 {
    match begin(fixture, caller, hash).await {
        Begun::Started { fence } => fence,
        other => panic!("{other:?}"),
    }
}

async fn finish(fixture: &Fixture, fence: i64, body: &str) {
    fixture.store.finish_request(&key("a"), fence, answer(body)).await.expect("the database is there");
}

pub async fn a_finished_request_is_answered_again(fixture: &Fixture) {
    let fence = started(fixture, "a", "hash").await;
    finish(fixture, fence, "first").await;
    fixture.advance(DAY / 2).await;
    assert_eq!(begin(fixture, "a", "hash").await, Begun::Answered(answer("first")));
    assert_eq!(begin(fixture, "a", "other").await, Begun::OtherRequest);
    assert!(
        matches!(begin(fixture, "b", "other").await, Begun::Started { .. }),
        "callers have keys of their own"
    );
}

pub async fn a_request_in_flight_keeps_others_away(fixture: &Fixture) {
    let fence = started(fixture, "a", "hash").await;
    let Begun::InFlight { remaining } = begin(fixture, "a", "hash").await else { panic!("it is in flight") };
    assert!(remaining <= LEASE && remaining > LEASE / 2, "{remaining:?}");
    assert_eq!(begin(fixture, "a", "other").await, Begun::OtherRequest);
    finish(fixture, fence, "done").await;
    assert_eq!(begin(fixture, "a", "hash").await, Begun::Answered(answer("done")));
}

pub async fn a_request_that_died_blocks_for_a_minute_and_its_late_answer_is_ignored(fixture: &Fixture) {
    let late = started(fixture, "a", "hash").await;
    fixture.advance(LEASE).await;
    let second = started(fixture, "a", "hash").await;
    assert!(second > late);
    finish(fixture, late, "late").await;
    fixture.store.abandon_request(&key("a"), late).await.expect("the database is there");
    assert!(matches!(begin(fixture, "a", "hash").await, Begun::InFlight { .. }));
    finish(fixture, second, "second").await;
    assert_eq!(begin(fixture, "a", "hash").await, Begun::Answered(answer("second")));
}

pub async fn an_abandoned_request_may_be_repeated_at_once(fixture: &Fixture) {
    let fence = started(fixture, "a", "hash").await;
    fixture.store.abandon_request(&key("a"), fence).await.expect("the database is there");
    started(fixture, "a", "other").await;
}

pub async fn a_key_is_forgotten_after_a_day(fixture: &Fixture) {
    let fence = started(fixture, "a", "hash").await;
    finish(fixture, fence, "old").await;
    fixture.advance(DAY).await;
    started(fixture, "a", "other").await;
    started(fixture, "b", "hash").await;
    let delete =
        async |limit| fixture.store.delete_old_idempotency_keys(limit).await.expect("the database is there");
    assert_eq!(delete(10).await, 0);
    fixture.advance(DAY).await;
    assert_eq!((delete(1).await, delete(10).await, delete(10).await), (1, 1, 0));
}
