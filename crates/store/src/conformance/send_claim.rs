//! Checks claims of sends: which instance may send, until when, and which instance takes over.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Push, Sms};
use campanile_domain::priority::Priority::{High, Low, Normal};
use campanile_domain::send::SendState;
use campanile_domain::status::SendStatus;
use campanile_domain::time::{Timestamp, later};

use super::Fixture;
use super::setup::{HALF_A_LEASE, LEASE, claimed, column, customer, event, left_due, outcome, rows};
use crate::{ClaimId, ExpiredClaim, InstanceId, SendJob, Settlement};

fn sent(job: &SendJob) -> Settlement {
    outcome(job, SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH })
}

async fn due_in(fixture: &Fixture, job: &SendJob, delay: Duration) -> Settlement {
    let now = fixture.store.now().await.expect("the database is there");
    outcome(job, SendState::Due { at: later(now, delay) })
}

async fn expired(fixture: &Fixture) -> Vec<ExpiredClaim> {
    fixture.store.expired_claims(10).await.expect("the database is there")
}

fn events(jobs: &[SendJob]) -> Vec<&str> {
    jobs.iter().map(|job| job.event_id.as_str()).collect()
}

pub async fn a_claim_expires_by_the_clock_of_the_database_and_not_before(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    assert!(expired(fixture).await.is_empty());
    fixture.advance(HALF_A_LEASE).await;
    let later_job = fixture.sending("b", Email).await;
    assert!(expired(fixture).await.is_empty());
    fixture.advance(HALF_A_LEASE + Duration::from_secs(1)).await;
    let first = expired(fixture).await;
    assert_eq!(first.len(), 1);
    assert_eq!((first[0].claim, &first[0].jobs), (job.claim, &vec![job.clone()]));
    assert_eq!(expired(fixture).await.len(), 1, "looking does not change it");
    fixture.advance(HALF_A_LEASE).await;
    let both: Vec<_> = expired(fixture).await.iter().map(|expired| expired.claim).collect();
    assert_eq!(both, [job.claim, later_job.claim]);
    let one = fixture.store.expired_claims(1).await.expect("the database is there");
    assert_eq!((one.len(), one[0].claim), (1, job.claim));
}

pub async fn an_expired_claim_has_what_is_still_being_sent(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Push, Sms]);
    fixture.published(&event("a"), &rows).await;
    let all: Vec<_> = rows.iter().map(|row| claimed(row.key)).collect();
    let jobs = fixture.receive(&all).await.jobs;
    fixture.store.settle(vec![sent(&jobs[1])], vec![], InstanceId(1)).await.expect("the database is there");
    fixture.advance(LEASE * 2).await;
    let mut left = expired(fixture).await.remove(0).jobs;
    left.sort_by_key(|job| job.key);
    assert_eq!(left, [jobs[0].clone(), jobs[2].clone()]);
    let claim = jobs[0].claim;
    fixture
        .store
        .settle(vec![sent(&jobs[0]), sent(&jobs[2])], vec![], InstanceId(1))
        .await
        .expect("the database is there");
    assert!(expired(fixture).await[0].jobs.is_empty());
    fixture.store.settle(vec![], vec![claim], InstanceId(1)).await.expect("the database is there");
    assert!(expired(fixture).await.is_empty());
}

pub async fn a_finished_claim_does_not_expire(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    fixture.settle(vec![sent(&job)]).await;
    assert!(fixture.claim_due(Email, 10).await.is_empty());
    fixture.advance(LEASE * 2).await;
    assert!(expired(fixture).await.is_empty());
}

pub async fn a_claim_that_was_taken_over_writes_nothing(fixture: &Fixture) {
    let first = fixture.sending("a", Email).await;
    fixture.advance(LEASE * 2).await;
    let taken_over = expired(fixture).await.remove(0);
    let retry = due_in(fixture, &taken_over.jobs[0], Duration::ZERO).await;
    assert!(fixture.settle(vec![retry]).await.is_empty());
    assert_eq!(fixture.settle(vec![sent(&first)]).await, [first.key], "it waits for somebody else");
    let second = fixture.claim_due(Email, 10).await.remove(0);
    assert_eq!((second.key, second.attempt), (first.key, 2));
    assert!(second.claim > first.claim);
    assert_eq!(fixture.settle(vec![sent(&first)]).await, [first.key], "somebody else sends it");
    assert_eq!(fixture.send("a", first.key).await.row.status, SendStatus::Sending);
    assert!(fixture.settle(vec![sent(&second)]).await.is_empty());
    assert_eq!(column(&fixture.trace("a").await.sends, |send| send.row.status.clone()), [SendStatus::Sent]);
}

async fn renew(fixture: &Fixture, claims: &[ClaimId]) -> Vec<ClaimId> {
    let mut renewed =
        fixture.store.renew_claims(claims.to_vec(), LEASE).await.expect("the database is there");
    renewed.sort_unstable();
    renewed
}

pub async fn a_holder_renews_its_claim_until_it_has_expired(fixture: &Fixture) {
    let [a, b] = [fixture.sending("a", Email).await, fixture.sending("b", Email).await];
    for _ in 0..5 {
        fixture.advance(HALF_A_LEASE).await;
        assert_eq!(renew(fixture, &[a.claim]).await, [a.claim]);
    }
    let taken: Vec<_> = expired(fixture).await.into_iter().map(|claim| claim.claim).collect();
    assert_eq!(taken, [b.claim], "what is renewed is not taken over");
    assert_eq!(renew(fixture, &[a.claim, b.claim]).await, [a.claim], "what has expired is left to others");
    assert_eq!(expired(fixture).await.len(), 1);
    assert!(fixture.settle(vec![sent(&a)]).await.is_empty(), "its outcome is written");
    fixture.advance(LEASE + Duration::from_secs(1)).await;
    assert_eq!(expired(fixture).await.len(), 1);
}

pub async fn a_claim_that_is_gone_is_not_renewed(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    assert!(fixture.settle(vec![sent(&job)]).await.is_empty());
    assert!(renew(fixture, &[job.claim, ClaimId(job.claim.0 + 1)]).await.is_empty());
    assert!(renew(fixture, &[]).await.is_empty());
    fixture.advance(LEASE * 2).await;
    assert!(expired(fixture).await.is_empty());
}

pub async fn claims_rise(fixture: &Fixture) {
    let mut claims = Vec::new();
    for id in ["a", "b", "c"] {
        let job = fixture.sending(id, Email).await;
        claims.push(job.claim);
        let retry = due_in(fixture, &job, Duration::ZERO).await;
        fixture.settle(vec![retry]).await;
        claims.push(fixture.claim_due(Email, 1).await[0].claim);
        // A claim without sends still uses up its token, so an old token is never used again.
        assert!(fixture.claim_due(Sms, 1).await.is_empty());
    }
    assert!(claims.is_sorted_by(|a, b| a < b), "{claims:?}");
}

pub async fn due_sends_are_claimed_by_lane_then_by_due_time(fixture: &Fixture) {
    for (id, priority) in [("low", Low), ("late", Normal), ("soon", Normal), ("high", High)] {
        fixture.waiting(id, Email, priority).await;
    }
    let mut retries = Vec::new();
    for job in fixture.claim_due(Email, 10).await {
        let seconds = if job.event_id.as_str() == "soon" { 1 } else { 2 };
        retries.push(due_in(fixture, &job, Duration::from_secs(seconds)).await);
    }
    fixture.settle(retries).await;
    fixture.advance(Duration::from_secs(10)).await;
    assert_eq!(events(&fixture.claim_due(Email, 3).await), ["high", "soon", "late"]);
    assert_eq!(events(&fixture.claim_due(Email, 3).await), ["low"]);
}

pub async fn a_send_is_not_claimed_before_it_is_due(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let retry = due_in(fixture, &job, Duration::from_mins(1)).await;
    fixture.settle(vec![retry]).await;
    fixture.waiting("b", Email, Low).await;
    assert_eq!(events(&fixture.claim_due(Email, 10).await), ["b"], "what is more urgent is not due yet");
    fixture.advance(Duration::from_secs(50)).await;
    assert!(fixture.claim_due(Email, 10).await.is_empty());
    fixture.advance(Duration::from_secs(11)).await;
    assert_eq!(events(&fixture.claim_due(Email, 10).await), ["a"]);
}

pub async fn a_due_send_is_claimed_once(fixture: &Fixture) {
    for id in ["a", "b", "c", "d"] {
        fixture.waiting(id, Email, Normal).await;
    }
    let (left, right) = tokio::join!(fixture.claim_due(Email, 3), fixture.claim_due(Email, 3));
    let mut claimed: Vec<_> = events(&left).into_iter().chain(events(&right)).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, ["a", "b", "c", "d"]);
    assert_ne!(left[0].claim, right[0].claim);
    assert!(fixture.claim_due(Email, 3).await.is_empty());
}

pub async fn only_due_sends_of_the_channel_are_claimed_and_no_more_than_asked(fixture: &Fixture) {
    for id in ["a", "b", "c"] {
        fixture.waiting(id, Email, Normal).await;
    }
    let both = rows("both", &customer("42"), &[Email, Sms]);
    fixture.published(&event("both"), &both).await;
    fixture.receive(&[left_due(both[0].key), left_due(both[1].key)]).await;
    assert_eq!(fixture.claim_due(Email, 3).await.len(), 3);
    assert_eq!(fixture.claim_due(Email, 3).await.len(), 1);
    assert!(fixture.claim_due(Push, 3).await.is_empty());
    let jobs = fixture.claim_due(Sms, 3).await;
    assert_eq!((jobs.len(), jobs[0].key, &jobs[0].address), (1, both[1].key, &both[1].address));
}

pub async fn the_next_due_time_is_the_earliest_of_its_channel(fixture: &Fixture) {
    let next = async |channel| fixture.store.next_due(channel).await.expect("the database is there");
    assert_eq!(next(Email).await, None);
    let now = fixture.store.now().await.expect("the database is there");
    fixture.waiting("sms", Sms, High).await;
    for (id, priority, seconds, next_in) in
        [("a", High, 90, 90), ("b", Low, 60, 60), ("c", Normal, 30, 30), ("d", High, 80, 30)]
    {
        fixture.waiting(id, Email, priority).await;
        let job = fixture.claim_due(Email, 1).await.remove(0);
        let at = later(now, Duration::from_secs(seconds));
        fixture.settle(vec![outcome(&job, SendState::Due { at })]).await;
        let due = next(Email).await.expect("something waits");
        let earliest = later(now, Duration::from_secs(next_in));
        assert!(
            (due.as_millisecond() - earliest.as_millisecond()).abs() <= 1,
            "{id}: {due} is not {earliest}"
        );
    }
    assert_eq!(next(Push).await, None);
}
