//! Who posts an event to a webhook that several recipients share.

use std::sync::Arc;

use campanile_domain::channel::Channel::Slack;
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::send::{CRASHED, REJECTED, SendState};
use campanile_domain::time::Timestamp;
use tokio::task::JoinSet;

use super::Fixture;
use super::given::{LEASE, claimed, customer, event, outcome, row};
use crate::{Post, SendJob};

const WEBHOOK: &str = "https://hooks.example/services/secret";
const SENT: SendState = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };

async fn claim(fixture: &Fixture, job: &SendJob) -> Post {
    fixture.store.claim_post(job).await.expect("the database is there")
}

/// So many people share the webhook, and the event is just being sent to all of them.
async fn sharing(fixture: &Fixture, id: &str, people: usize) -> Vec<SendJob> {
    let rows: Vec<OutboxRow> = (0..people)
        .map(|number| OutboxRow {
            address: WEBHOOK.to_owned(),
            ..row(id, &customer(&number.to_string()), Slack)
        })
        .collect();
    fixture.published(&event(id), &rows).await;
    let mut jobs = Vec::new();
    // Each under a claim of its own.
    for row in &rows {
        jobs.extend(fixture.receive(&[claimed(row.key)]).await.jobs);
    }
    jobs
}

pub async fn the_first_that_asks_posts_and_the_others_wait_until_it_did(fixture: &Fixture) {
    let jobs = sharing(fixture, "a", 2).await;
    let [first, second] = &jobs[..] else { panic!("two were claimed") };
    assert_eq!(claim(fixture, first).await, Post::Mine);
    assert_eq!(claim(fixture, second).await, Post::Open);
    assert_eq!(claim(fixture, first).await, Post::Mine, "it may ask again");
    // Let go before Slack was asked, it is still the one that will.
    fixture.settle(vec![outcome(first, SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
    assert_eq!(claim(fixture, second).await, Post::Open);
    let again = fixture.claim_due(Slack, 1).await.pop().expect("it is due");
    assert_eq!(claim(fixture, &again).await, Post::Mine);
    fixture.settle(vec![outcome(&again, SENT)]).await;
    assert_eq!(claim(fixture, second).await, Post::Done(first.key.notification_id));
    assert_eq!(fixture.count("SELECT count(*) FROM event_post").await, 1);
    let secret = "SELECT count(*) FROM event_post WHERE address_hash LIKE '%secret%'";
    assert_eq!(fixture.count(secret).await, 0);
}

pub async fn of_many_at_once_one_posts(fixture: &Fixture) {
    let mut asking = JoinSet::new();
    for job in sharing(fixture, "a", 20).await {
        let store = Arc::clone(&fixture.store);
        asking.spawn(async move { store.claim_post(&job).await.expect("the database is there") });
    }
    let told = asking.join_all().await;
    assert_eq!(told.iter().filter(|post| **post == Post::Mine).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|post| **post == Post::Open).count(), 19, "{told:?}");
}

pub async fn another_event_or_webhook_is_posted_apart(fixture: &Fixture) {
    let first = &sharing(fixture, "a", 2).await;
    assert_eq!(claim(fixture, &first[0]).await, Post::Mine);
    let other = SendJob { address: "https://hooks.example/services/other".to_owned(), ..first[1].clone() };
    assert_eq!(claim(fixture, &other).await, Post::Mine);
    assert_eq!(claim(fixture, &sharing(fixture, "b", 1).await[0]).await, Post::Mine);
}

pub async fn who_failed_leaves_the_post_to_the_next(fixture: &Fixture) {
    let jobs = sharing(fixture, "a", 2).await;
    assert_eq!(claim(fixture, &jobs[0]).await, Post::Mine);
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: REJECTED })]).await;
    assert_eq!(claim(fixture, &jobs[1]).await, Post::Mine);
}

pub async fn who_may_have_posted_keeps_the_post(fixture: &Fixture) {
    let jobs = sharing(fixture, "a", 2).await;
    claim(fixture, &jobs[0]).await;
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: CRASHED })]).await;
    assert_eq!(claim(fixture, &jobs[1]).await, Post::Lost(jobs[0].key.notification_id));
}

pub async fn who_lost_the_claim_gives_up_no_post(fixture: &Fixture) {
    let jobs = sharing(fixture, "a", 2).await;
    claim(fixture, &jobs[0]).await;
    fixture.settle(vec![outcome(&jobs[0], SENT)]).await;
    let late = outcome(&jobs[0], SendState::Failed { code: REJECTED });
    assert_eq!(fixture.settle(vec![late]).await, [jobs[0].key]);
    assert_eq!(claim(fixture, &jobs[1]).await, Post::Done(jobs[0].key.notification_id));
}

pub async fn a_post_may_have_been_made_only_under_the_claim_that_asked_for_it(fixture: &Fixture) {
    let may_have_posted =
        async |job: &SendJob| fixture.store.may_have_posted(job).await.expect("the database is there");
    let jobs = sharing(fixture, "a", 2).await;
    assert!(!may_have_posted(&jobs[0]).await, "it has not asked yet");
    claim(fixture, &jobs[0]).await;
    claim(fixture, &jobs[1]).await;
    assert!(may_have_posted(&jobs[0]).await);
    assert!(!may_have_posted(&jobs[1]).await, "the post is another's");
    fixture.settle(vec![outcome(&jobs[0], SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
    let again = fixture.claim_due(Slack, 1).await.pop().expect("it is due");
    assert!(!may_have_posted(&again).await, "it has not asked under its new claim");
    assert_eq!(claim(fixture, &again).await, Post::Mine);
    assert!(may_have_posted(&again).await);
}

/// It would leave a row behind that nobody ever ends.
pub async fn who_slept_past_its_claim_gets_no_post(fixture: &Fixture) {
    let jobs = sharing(fixture, "a", 2).await;
    fixture.advance(LEASE * 2).await;
    fixture.settle(vec![outcome(&jobs[0], SendState::Failed { code: CRASHED })]).await;
    assert_eq!(claim(fixture, &jobs[0]).await, Post::Open);
    assert_eq!(claim(fixture, &jobs[1]).await, Post::Mine);
}
