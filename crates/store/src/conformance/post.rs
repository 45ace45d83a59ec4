//! Who posts an event to a webhook that several recipients share.

use std::sync::Arc;

use campanile_domain::channel::Channel::Slack;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::send::{CRASHED, REJECTED, SendState};
use campanile_domain::time::Timestamp;
use tokio::task::JoinSet;

use super::Fixture;
use super::given::{event_id, outcome};
use crate::Post;

const WEBHOOK: &str = "https://hooks.example/services/secret";

fn key() -> SendKey {
    SendKey { notification_id: NotificationId::generate(), channel: Slack }
}

async fn claim(fixture: &Fixture, event: &str, webhook: &str, key: SendKey) -> Post {
    fixture.store.claim_post(&event_id(event), webhook, key).await.expect("the database is there")
}

pub async fn the_first_that_asks_posts_and_the_others_are_told_who(fixture: &Fixture) {
    let (first, second) = (key(), key());
    assert_eq!(claim(fixture, "a", WEBHOOK, first).await, Post::Mine);
    assert_eq!(claim(fixture, "a", WEBHOOK, second).await, Post::Of(first.notification_id));
    assert_eq!(claim(fixture, "a", WEBHOOK, first).await, Post::Mine, "it may ask again");
    assert_eq!(fixture.count("SELECT count(*) FROM event_post").await, 1);
    let secret = "SELECT count(*) FROM event_post WHERE address_hash LIKE '%secret%'";
    assert_eq!(fixture.count(secret).await, 0);
}

pub async fn of_many_at_once_one_posts(fixture: &Fixture) {
    let mut asking = JoinSet::new();
    for _ in 0..20 {
        let (store, key) = (Arc::clone(&fixture.store), key());
        asking.spawn(async move {
            let post = store.claim_post(&event_id("a"), WEBHOOK, key).await;
            (key.notification_id, post.expect("the database is there"))
        });
    }
    let told = asking.join_all().await;
    let mine: Vec<NotificationId> =
        told.iter().filter(|(_, post)| *post == Post::Mine).map(|(id, _)| *id).collect();
    assert_eq!(mine.len(), 1, "{told:?}");
    assert!(told.iter().all(|(id, post)| *id == mine[0] || *post == Post::Of(mine[0])), "{told:?}");
}

pub async fn another_event_or_webhook_is_posted_apart(fixture: &Fixture) {
    assert_eq!(claim(fixture, "a", WEBHOOK, key()).await, Post::Mine);
    assert_eq!(claim(fixture, "b", WEBHOOK, key()).await, Post::Mine);
    assert_eq!(claim(fixture, "a", "https://hooks.example/services/other", key()).await, Post::Mine);
}

pub async fn who_failed_leaves_the_post_to_the_next(fixture: &Fixture) {
    let (next, sent) = (key(), SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH });
    let job = fixture.sending("a", Slack).await;
    assert_eq!(claim(fixture, "a", &job.address, job.key).await, Post::Mine);
    assert_eq!(claim(fixture, "a", &job.address, next).await, Post::Of(job.key.notification_id));
    fixture.settle(vec![outcome(&job, SendState::Failed { code: REJECTED })]).await;
    assert_eq!(claim(fixture, "a", &job.address, next).await, Post::Mine);
    let job = fixture.sending("b", Slack).await;
    claim(fixture, "b", &job.address, job.key).await;
    fixture.settle(vec![outcome(&job, sent)]).await;
    assert_eq!(claim(fixture, "b", &job.address, next).await, Post::Of(job.key.notification_id));
}

pub async fn who_may_have_posted_keeps_the_post(fixture: &Fixture) {
    let job = fixture.sending("a", Slack).await;
    claim(fixture, "a", &job.address, job.key).await;
    fixture.settle(vec![outcome(&job, SendState::Failed { code: CRASHED })]).await;
    assert_eq!(claim(fixture, "a", &job.address, key()).await, Post::Of(job.key.notification_id));
}

pub async fn who_lost_the_claim_gives_up_no_post(fixture: &Fixture) {
    let sent = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };
    let job = fixture.sending("a", Slack).await;
    claim(fixture, "a", &job.address, job.key).await;
    fixture.settle(vec![outcome(&job, sent)]).await;
    let late = outcome(&job, SendState::Failed { code: REJECTED });
    assert_eq!(fixture.settle(vec![late]).await, [job.key]);
    assert_eq!(claim(fixture, "a", &job.address, key()).await, Post::Of(job.key.notification_id));
}
