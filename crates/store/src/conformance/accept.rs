//! Checks how events are accepted, and how their failures are recorded.

use campanile_domain::channel::Channel::Email;
use campanile_domain::event::transition::Step;
use campanile_domain::event::{Failure, NewEvent};
use campanile_domain::fan_out::Cursor;
use campanile_domain::id::EventSeq;
use campanile_domain::status::{EventStatus, ProcessedStatus};
use serde_json::json;

use super::Fixture;
use super::publish::republish;
use super::setup::{chunk_of, claimed, customer, event, event_id, found, row, step_of, summary};
use crate::{Acceptance, Claim, FanOutClaim, TraceFilter};

async fn accept(fixture: &Fixture, events: &[NewEvent]) -> Acceptance {
    fixture.store.accept(events.to_vec()).await.expect("the events are good")
}

fn with_another_body(event: &NewEvent) -> NewEvent {
    let payload = serde_json::from_value(json!({ "total": 13 })).expect("an object is a payload");
    NewEvent { payload, ..event.clone() }
}

pub async fn a_new_event_is_created_and_pending(fixture: &Fixture) {
    let accepted = accept(fixture, &[event("a"), event("b")]).await;
    assert_eq!(accepted, Acceptance::Accepted(vec![true, true]));
    assert_eq!(fixture.event_status("a").await, EventStatus::Pending);
    assert_eq!(fixture.event_status("b").await, EventStatus::Pending);
}

pub async fn the_same_event_again_is_not_created(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let accepted = accept(fixture, &[event("b"), event("a")]).await;
    assert_eq!(accepted, Acceptance::Accepted(vec![true, false]));
    assert_eq!(fixture.count("SELECT count(*) FROM event_outbox").await, 2);
}

pub async fn another_body_under_a_known_id_conflicts_and_nothing_is_written(fixture: &Fixture) {
    fixture.accept(&[event("a"), event("b")]).await;
    let batch = [event("new"), with_another_body(&event("a")), event("b"), with_another_body(&event("b"))];
    assert_eq!(accept(fixture, &batch).await, Acceptance::Conflicts(vec![1, 3]));
    let new = fixture.store.trace(&event_id("new"), TraceFilter::default()).await;
    assert!(new.expect("the database is there").is_none());
    assert_eq!(fixture.trace("a").await.event.payload, json!({ "total": 12 }));
}

pub async fn an_id_is_known_after_its_event_is_gone(fixture: &Fixture) {
    forgotten(fixture, &event("a")).await;
    assert_eq!(accept(fixture, &[event("a")]).await, Acceptance::Accepted(vec![false]));
    assert_eq!(accept(fixture, &[with_another_body(&event("a"))]).await, Acceptance::Conflicts(vec![0]));
    assert_eq!(fixture.count("SELECT count(*) FROM event_outbox").await, 0);
}

pub async fn an_old_event_inserted_again_is_known(fixture: &Fixture) {
    forgotten(fixture, &event("a")).await;
    fixture.insert("a").await;
    fixture.accept(&[event("b")]).await;
    let only_a_is_known = |claim: &dyn FanOutClaim| {
        assert!(found(claim, "a").known && !found(claim, "b").known);
        claim.events().iter().map(|claimed| claimed.seq).collect()
    };
    let all: Vec<EventSeq> = only_a_is_known(&*fixture.claim_new().await);
    only_a_is_known(&*fixture.try_claim(Claim::ByIds(all)).await.expect("they wait"));
}

/// Creates an event that was processed and whose row has been deleted since.
async fn forgotten(fixture: &Fixture, event: &NewEvent) {
    fixture.accept(std::slice::from_ref(event)).await;
    let claim = fixture.claim_new().await;
    let step = step_of(&claim.events()[0], Step::Finished(summary(0)));
    fixture.commit(claim, vec![step], vec![]).await;
    fixture.execute(&format!("DELETE FROM event_outbox WHERE event_id = '{}'", event.event_id)).await;
}

pub async fn an_event_fails_after_as_many_failures_as_allowed(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let seq = fixture.claim_new().await.events()[0].seq;
    for last in [false, false, true] {
        assert_eq!(fixture.event_status("a").await, EventStatus::Pending);
        assert_eq!(count_failure(fixture, seq).await, last);
    }
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Failed);
    assert_eq!(trace.event.row.last_error.as_deref(), Some("BROKEN: it broke"));
    assert_eq!(trace.event.row.retry_count, 3);
    assert_eq!(trace.dead_letters.len(), 1);
    assert_eq!(trace.dead_letters[0].stage, "fan_out");
    assert_eq!(trace.dead_letters[0].reason, "BROKEN");
    assert!(fixture.try_claim(Claim::New { limit: 10 }).await.is_none());
    assert!(!count_failure(fixture, seq).await, "what has failed does not fail again");
    assert_eq!(fixture.trace("a").await.dead_letters.len(), 1);
}

async fn fail(fixture: &Fixture, seq: EventSeq) {
    for last in [false, false, true] {
        assert_eq!(count_failure(fixture, seq).await, last);
    }
}

/// Counts a failure; the third one gives the event up. Returns whether it was given up.
async fn count_failure(fixture: &Fixture, seq: EventSeq) -> bool {
    let failure = Failure::new("BROKEN", "it broke");
    fixture.store.count_failure(seq, failure, 3).await.expect("the database is there")
}

pub async fn an_event_that_failed_half_way_may_be_redone(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let seq = claim.events()[0].seq;
    let step = step_of(&claim.events()[0], Step::Continues(Cursor::default()));
    fixture.commit(claim, vec![step], vec![]).await;
    fail(fixture, seq).await;
    fixture.execute("UPDATE event_outbox SET status = 'PENDING' WHERE event_id = 'a'").await;
    let claim = fixture.claim_new().await;
    assert!(!found(&*claim, "a").known, "nobody behind the cursor was told");
    assert_eq!(found(&*claim, "a").cursor, None);
}

pub async fn an_event_that_is_given_up_half_way_keeps_what_was_written(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let seq = claim.events()[0].seq;
    let mut cursor = Cursor::default();
    cursor.summary = summary(1);
    let step = step_of(&claim.events()[0], Step::Continues(cursor));
    let notified = row("a", &customer("42"), Email);
    let chunk = chunk_of(&step.event, std::slice::from_ref(&notified), true);
    let chunk = fixture.commit(claim, vec![step], vec![chunk]).await.remove(0);
    fixture.store.chunks_published(&[chunk.id]).await.expect("the database is there");
    fail(fixture, seq).await;
    let trace = fixture.trace("a").await;
    assert_eq!(trace.event.row.status, EventStatus::Published);
    assert_eq!(trace.event.row.last_error.as_deref(), Some("BROKEN: it broke"));
    assert!(trace.event.row.published_at.is_some());
    let processed = trace.processed.expect("some was decided");
    assert_eq!(processed.status, ProcessedStatus::Success);
    assert_eq!(processed.recipients, 1);
    assert_eq!(trace.dead_letters.len(), 1);
    assert_eq!(trace.dead_letters[0].reason, "BROKEN");
    assert!(fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.is_none());
    assert!(!count_failure(fixture, seq).await, "what was given up does not fail again");
    let lost = republish(fixture, &[notified.queue.as_str()], 10).await;
    assert_eq!(lost, 1, "what the broker loses is published again");
    fixture.receive(&[claimed(notified.key)]).await;
    assert_eq!(fixture.store.close_events(vec![event_id("a")]).await.expect("the database is there"), 1);
}

pub async fn an_old_event_that_fails_stays_known(fixture: &Fixture) {
    forgotten(fixture, &event("a")).await;
    fixture.insert("a").await;
    let seq = fixture.claim_new().await.events()[0].seq;
    fail(fixture, seq).await;
    fixture.execute("UPDATE event_outbox SET status = 'PENDING' WHERE event_id = 'a'").await;
    assert!(found(&*fixture.claim_new().await, "a").known, "it was told once");
}
