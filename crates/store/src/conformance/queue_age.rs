//! Checks how long the oldest item of each stage has waited.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Sms};
use campanile_domain::event::transition::Step;
use campanile_domain::fan_out::Cursor;
use campanile_domain::id::EventSeq;
use campanile_domain::priority::Priority::{High, Low, Normal};
use campanile_domain::send::SendState;
use campanile_domain::time::later;

use super::Fixture;
use super::setup::{
    LEASE, chunk_of, claimed, customer, event, found, outcome, row, step_of, summary, urgent,
};
use crate::{Claim, QueueAges};

const MINUTE: Duration = Duration::from_mins(1);

async fn oldest(fixture: &Fixture) -> QueueAges {
    fixture.store.queue_ages().await.expect("the database is there")
}

/// Allows for the time that the check itself takes.
#[track_caller]
fn assert_about(age: Duration, about: Duration) {
    assert!(age >= about && age < about + Duration::from_secs(20), "{age:?} is not about {about:?}");
}

pub async fn where_nothing_waits_nothing_is_old(fixture: &Fixture) {
    assert_eq!(oldest(fixture).await, QueueAges::default());
    let job = fixture.sending("a", Email).await;
    fixture.settle(vec![outcome(&job, SendState::Failed { code: "REJECTED" })]).await;
    fixture.close(&["a"]).await;
    fixture.failed("b").await;
    fixture.advance(MINUTE).await;
    assert_eq!(oldest(fixture).await, QueueAges::default(), "what has ended does not wait");
}

pub async fn an_event_waits_from_its_arrival_until_its_fan_out_has_ended(fixture: &Fixture) {
    fixture.accept(&[event("a")]).await;
    fixture.advance(MINUTE).await;
    let waiting = oldest(fixture).await;
    assert_about(waiting.fan_out, MINUTE);
    assert_eq!(QueueAges { fan_out: Duration::ZERO, ..waiting }, QueueAges::default());
    let claim = fixture.claim_new().await;
    let begun = step_of(found(&*claim, "a"), Step::Continues(Cursor::default()));
    fixture.commit(claim, vec![begun], vec![]).await;
    fixture.advance(MINUTE).await;
    assert_about(oldest(fixture).await.fan_out, MINUTE * 2);
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("it has begun");
    let ended = step_of(found(&*claim, "a"), Step::Finished(summary(0)));
    fixture.commit(claim, vec![ended], vec![]).await;
    assert_eq!(oldest(fixture).await, QueueAges::default());
}

pub async fn the_oldest_event_of_any_lane_counts(fixture: &Fixture) {
    for (id, priority, so_far) in [("a", Normal, 1), ("b", Low, 2), ("c", High, 3)] {
        fixture.accept(&[urgent(id, priority)]).await;
        fixture.advance(MINUTE).await;
        assert_about(oldest(fixture).await.fan_out, MINUTE * so_far);
    }
    for (oldest_id, left) in [("a", 2), ("b", 1), ("c", 0)] {
        let claim = fixture.claim_new().await;
        let step = step_of(found(&*claim, oldest_id), Step::Finished(summary(0)));
        fixture.commit(claim, vec![step], vec![]).await;
        assert_about(oldest(fixture).await.fan_out, MINUTE * left);
    }
}

pub async fn a_chunk_waits_from_its_rows_until_it_is_published(fixture: &Fixture) {
    let first = row("a", &customer("42"), Email);
    let leased = fixture.fan_out(&event("a"), std::slice::from_ref(&first), true).await;
    fixture.advance(MINUTE).await;
    let second = row("b", &customer("42"), Email);
    fixture.fan_out(&event("b"), std::slice::from_ref(&second), false).await;
    fixture.advance(MINUTE).await;
    let waiting = oldest(fixture).await;
    assert_about(waiting.publish, MINUTE * 2);
    assert_eq!((waiting.fan_out, waiting.send), (Duration::ZERO, Duration::ZERO));
    fixture.store.chunks_published(&[leased[0].id]).await.expect("the database is there");
    assert_about(oldest(fixture).await.publish, MINUTE);
    let free = fixture.store.claim_chunk(&second.queue, LEASE).await.expect("the database is there");
    assert_about(oldest(fixture).await.publish, MINUTE);
    fixture.store.chunks_published(&[free.expect("it waits").id]).await.expect("the database is there");
    assert_eq!(oldest(fixture).await.publish, Duration::ZERO);
}

pub async fn a_chunk_waits_although_its_first_row_was_dropped(fixture: &Fixture) {
    let notified = row("a", &customer("42"), Email);
    fixture.accept(&[event("a")]).await;
    let claim = fixture.claim_new().await;
    let begun = step_of(found(&*claim, "a"), Step::Continues(Cursor::default()));
    let chunk = chunk_of(&begun.event, std::slice::from_ref(&notified), true);
    let chunks = fixture.commit(claim, vec![begun], vec![chunk]).await;
    fixture.store.chunks_published(&[chunks[0].id]).await.expect("the database is there");
    // The first recipient again, and a new one.
    let rows = [row("a", &customer("42"), Email), row("a", &customer("43"), Email)];
    let claim =
        fixture.try_claim(Claim::Continuing { after: EventSeq::default() }).await.expect("it has begun");
    let ended = step_of(found(&*claim, "a"), Step::Finished(summary(1)));
    let chunk = chunk_of(&ended.event, &rows, false);
    fixture.commit(claim, vec![ended], vec![chunk]).await;
    fixture.advance(MINUTE).await;
    assert_about(oldest(fixture).await.publish, MINUTE);
}

pub async fn an_event_waits_from_its_fan_out_until_it_is_received(fixture: &Fixture) {
    let row = row("a", &customer("42"), Email);
    fixture.accept(&[event("a")]).await;
    fixture.advance(MINUTE).await;
    let claim = fixture.claim_new().await;
    let ended = step_of(found(&*claim, "a"), Step::Finished(summary(1)));
    let chunk = chunk_of(&ended.event, std::slice::from_ref(&row), true);
    let chunks = fixture.commit(claim, vec![ended], vec![chunk]).await;
    fixture.store.chunks_published(&[chunks[0].id]).await.expect("the database is there");
    fixture.advance(MINUTE).await;
    let waiting = oldest(fixture).await;
    assert_about(waiting.receive, MINUTE);
    assert_eq!(QueueAges { receive: Duration::ZERO, ..waiting }, QueueAges::default());
    fixture.receive(&[claimed(row.key)]).await;
    fixture.close(&["a"]).await;
    assert_eq!(oldest(fixture).await, QueueAges::default());
}

pub async fn an_event_that_was_fanned_out_earlier_counts_before_one_that_arrived_earlier(fixture: &Fixture) {
    fixture.accept(&[urgent("low", Low)]).await;
    let row = row("high", &customer("42"), Email);
    fixture.published(&urgent("high", High), std::slice::from_ref(&row)).await;
    fixture.advance(MINUTE).await;
    let claim = fixture.claim_new().await;
    let ended = step_of(found(&*claim, "low"), Step::Finished(summary(1)));
    let chunk = chunk_of(&ended.event, &[super::setup::row("low", &customer("43"), Email)], true);
    fixture.commit(claim, vec![ended], vec![chunk]).await;
    assert_about(oldest(fixture).await.receive, MINUTE);
}

pub async fn a_send_waits_from_when_it_is_due(fixture: &Fixture) {
    fixture.waiting("a", Email, Normal).await;
    fixture.close(&["a"]).await;
    fixture.advance(MINUTE).await;
    let waiting = oldest(fixture).await;
    assert_about(waiting.send, MINUTE);
    assert_eq!(QueueAges { send: Duration::ZERO, ..waiting }, QueueAges::default());
    let job = fixture.claim_due(Email, 1).await.remove(0);
    assert_eq!(oldest(fixture).await.send, Duration::ZERO, "somebody has it");
    let now = fixture.store.now().await.expect("the database is there");
    fixture.settle(vec![outcome(&job, SendState::Due { at: later(now, MINUTE * 2) })]).await;
    assert_eq!(oldest(fixture).await.send, Duration::ZERO, "its time has not come");
    fixture.advance(MINUTE * 3).await;
    assert_about(oldest(fixture).await.send, MINUTE);
}

pub async fn the_oldest_send_of_any_channel_and_lane_counts(fixture: &Fixture) {
    let sends = [("a", Sms, Low), ("b", Email, High), ("c", Sms, Normal), ("d", Email, Low)];
    for (id, channel, priority) in sends {
        fixture.waiting(id, channel, priority).await;
        fixture.advance(MINUTE).await;
    }
    assert_about(oldest(fixture).await.send, MINUTE * 4);
    fixture.claim_due(Sms, 10).await;
    assert_about(oldest(fixture).await.send, MINUTE * 3);
    fixture.claim_due(Email, 1).await;
    assert_about(oldest(fixture).await.send, MINUTE);
}

pub async fn a_claim_waits_from_when_its_lease_has_passed(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    fixture.close(&["a"]).await;
    assert_eq!(oldest(fixture).await, QueueAges::default());
    fixture.advance(LEASE + MINUTE).await;
    assert_about(oldest(fixture).await.send, MINUTE);
    fixture.settle(vec![outcome(&job, SendState::Failed { code: "REJECTED" })]).await;
    assert_eq!(oldest(fixture).await, QueueAges::default());
}
