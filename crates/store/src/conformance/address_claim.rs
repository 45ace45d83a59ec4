//! Checks which send sends an event to a webhook that several recipients share.

use std::sync::Arc;

use campanile_domain::channel::Channel::Slack;
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::send::{AddressClaim, CRASHED, REJECTED, SendState};
use campanile_domain::time::Timestamp;
use tokio::task::JoinSet;

use super::Fixture;
use super::setup::{LEASE, claimed, customer, event, outcome, row};
use crate::SendJob;

const WEBHOOK: &str = "https://hooks.example/services/secret";
const SENT: SendState = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };

async fn claim(fixture: &Fixture, job: &SendJob) -> AddressClaim {
    fixture.store.claim_address(job).await.expect("the database is there")
}

/// Claims the sends of an event to this many recipients, who share a webhook.
async fn sharing_one_webhook(fixture: &Fixture, id: &str, people: usize) -> Vec<SendJob> {
    let rows: Vec<OutboxRow> = (0..people)
        .map(|number| OutboxRow {
            address: WEBHOOK.to_owned(),
            ..row(id, &customer(&number.to_string()), Slack)
        })
        .collect();
    fixture.published(&event(id), &rows).await;
    let mut jobs = Vec::new();
    // One call per row, so that each send has its own claim.
    for row in &rows {
        jobs.extend(fixture.receive(&[claimed(row.key)]).await.jobs);
    }
    jobs
}

pub async fn the_first_that_asks_sends_and_the_others_wait_until_it_did(fixture: &Fixture) {
    let jobs = sharing_one_webhook(fixture, "a", 2).await;
    let [first, second] = &jobs[..] else { panic!("two were claimed") };
    assert_eq!(claim(fixture, first).await, AddressClaim::Held);
    assert_eq!(claim(fixture, second).await, AddressClaim::Pending);
    assert_eq!(claim(fixture, first).await, AddressClaim::Held, "it may ask again");
    // The first send is due again before Slack was asked. It still holds the address.
    fixture.settle(vec![outcome(first, SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
    assert_eq!(claim(fixture, second).await, AddressClaim::Pending);
    let again = fixture.claim_due(Slack, 1).await.pop().expect("it is due");
    assert_eq!(claim(fixture, &again).await, AddressClaim::Held);
    fixture.settle(vec![outcome(&again, SENT)]).await;
    assert_eq!(claim(fixture, second).await, AddressClaim::Sent(first.key.notification_id));
    assert_eq!(fixture.count("SELECT count(*) FROM send_once").await, 1);
    let secret = "SELECT count(*) FROM send_once WHERE address_hash LIKE '%secret%'";
    assert_eq!(fixture.count(secret).await, 0);
}

pub async fn of_many_at_once_one_sends(fixture: &Fixture) {
    let mut asking = JoinSet::new();
    for job in sharing_one_webhook(fixture, "a", 20).await {
        let store = Arc::clone(&fixture.store);
        asking.spawn(async move { store.claim_address(&job).await.expect("the database is there") });
    }
    let results = asking.join_all().await;
    assert_eq!(
        results.iter().filter(|address_claim| **address_claim == AddressClaim::Held).count(),
        1,
        "{results:?}"
    );
    assert_eq!(
        results.iter().filter(|address_claim| **address_claim == AddressClaim::Pending).count(),
        19,
        "{results:?}"
    );
}

pub async fn another_event_or_webhook_is_claimed_apart(fixture: &Fixture) {
    let first = &sharing_one_webhook(fixture, "a", 2).await;
    assert_eq!(claim(fixture, &first[0]).await, AddressClaim::Held);
    let other = SendJob { address: "https://hooks.example/services/other".to_owned(), ..first[1].clone() };
    assert_eq!(claim(fixture, &other).await, AddressClaim::Held);
    assert_eq!(claim(fixture, &sharing_one_webhook(fixture, "b", 1).await[0]).await, AddressClaim::Held);
}

pub async fn who_failed_leaves_the_address_to_the_next(fixture: &Fixture) {
    let jobs = sharing_one_webhook(fixture, "a", 2).await;
    assert_eq!(claim(fixture, &jobs[0]).await, AddressClaim::Held);
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: REJECTED })]).await;
    assert_eq!(claim(fixture, &jobs[1]).await, AddressClaim::Held);
}

pub async fn who_may_have_sent_keeps_the_address_claim(fixture: &Fixture) {
    let jobs = sharing_one_webhook(fixture, "a", 2).await;
    claim(fixture, &jobs[0]).await;
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: CRASHED })]).await;
    assert_eq!(claim(fixture, &jobs[1]).await, AddressClaim::Unknown(jobs[0].key.notification_id));
}

pub async fn who_lost_the_claim_releases_no_address_claim(fixture: &Fixture) {
    let jobs = sharing_one_webhook(fixture, "a", 2).await;
    claim(fixture, &jobs[0]).await;
    fixture.settle(vec![outcome(&jobs[0], SENT)]).await;
    let late = outcome(&jobs[0], SendState::Failed { code: REJECTED });
    assert_eq!(fixture.settle(vec![late]).await, [jobs[0].key]);
    assert_eq!(claim(fixture, &jobs[1]).await, AddressClaim::Sent(jobs[0].key.notification_id));
}

pub async fn a_message_may_have_been_sent_only_under_the_claim_that_asked_for_it(fixture: &Fixture) {
    let may_have_sent =
        async |job: &SendJob| fixture.store.may_have_sent(job).await.expect("the database is there");
    let jobs = sharing_one_webhook(fixture, "a", 2).await;
    assert!(!may_have_sent(&jobs[0]).await, "it has not asked yet");
    claim(fixture, &jobs[0]).await;
    claim(fixture, &jobs[1]).await;
    assert!(may_have_sent(&jobs[0]).await);
    assert!(!may_have_sent(&jobs[1]).await, "the post is another's");
    fixture.settle(vec![outcome(&jobs[0], SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
    let again = fixture.claim_due(Slack, 1).await.pop().expect("it is due");
    assert!(!may_have_sent(&again).await, "it has not asked under its new claim");
    assert_eq!(claim(fixture, &again).await, AddressClaim::Held);
    assert!(may_have_sent(&again).await);
}

/// Such a claim would leave a row that no send ever releases.
pub async fn who_slept_past_its_claim_gets_no_address_claim(fixture: &Fixture) {
    let jobs = sharing_one_webhook(fixture, "a", 2).await;
    fixture.advance(LEASE * 2).await;
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: CRASHED })]).await;
    assert_eq!(claim(fixture, &jobs[0]).await, AddressClaim::Pending);
    assert_eq!(claim(fixture, &jobs[1]).await, AddressClaim::Held);
}
