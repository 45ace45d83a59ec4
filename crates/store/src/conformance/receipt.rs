//! Checks receipts: what providers report about a message after they have accepted it.

use campanile_domain::channel::Channel::Sms;
use campanile_domain::id::{NotificationId, SendKey};
use campanile_domain::send::SendState;
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;

use super::Fixture;
use super::setup::outcome;
use crate::{Receipt, SendJob, Settlement, Shown};

fn sent(job: &SendJob, external_id: &str) -> Settlement {
    let external_id = Some(external_id.to_owned());
    outcome(job, SendState::Sent { external_id, at: Timestamp::UNIX_EPOCH })
}

/// Records a receipt. Returns whether it was stored.
async fn receipt(fixture: &Fixture, key: SendKey, external_id: &str, receipt: &str) -> bool {
    let later_receipts = match receipt {
        "queued" => vec!["queued", "sent", "delivered", "undelivered"],
        "sent" => vec!["sent", "delivered", "undelivered"],
        _ => vec!["delivered", "undelivered"],
    };
    let receipt =
        Receipt { external_id: external_id.to_owned(), receipt: receipt.to_owned(), later_receipts };
    fixture.store.record_receipt(key, receipt).await.expect("the database is there")
}

pub async fn a_receipt_is_kept_and_the_status_stays(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    fixture.settle(vec![sent(&job, "SM1")]).await;
    assert!(receipt(fixture, job.key, "SM1", "undelivered").await);
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.receipt.as_deref(), Some("undelivered"));
    assert!(send.row.receipt_at.as_ref().and_then(Shown::at).is_some());
    let nobody = SendKey { notification_id: NotificationId::generate(), channel: Sms };
    assert!(!receipt(fixture, nobody, "SM1", "delivered").await);
}

pub async fn a_receipt_may_overtake_the_outcome(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    assert!(receipt(fixture, job.key, "SM1", "queued").await);
    assert_eq!(fixture.send("a", job.key).await.row.status, SendStatus::Sending);
    assert!(fixture.settle(vec![sent(&job, "SM1")]).await.is_empty(), "the claim still holds");
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.external_id.as_deref(), Some("SM1"));
    assert_eq!(send.row.receipt.as_deref(), Some("queued"));
    // The provider's answer was lost, but its receipt identifies the message.
    let job = fixture.sending("b", Sms).await;
    assert!(receipt(fixture, job.key, "SM2", "delivered").await);
    fixture.settle(vec![outcome(&job, SendState::InDoubt { since: Timestamp::UNIX_EPOCH })]).await;
    let send = fixture.send("b", job.key).await;
    assert_eq!(send.row.external_id.as_deref(), Some("SM2"));
    assert_eq!(send.row.receipt.as_deref(), Some("delivered"));
}

pub async fn a_receipt_of_another_message_is_left_alone(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    fixture.settle(vec![sent(&job, "SM1")]).await;
    assert!(!receipt(fixture, job.key, "SM2", "delivered").await);
    assert!(fixture.send("a", job.key).await.row.receipt.is_none());
}

pub async fn a_late_receipt_replaces_nothing_later(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    fixture.settle(vec![sent(&job, "SM1")]).await;
    assert!(receipt(fixture, job.key, "SM1", "queued").await);
    assert!(receipt(fixture, job.key, "SM1", "delivered").await);
    assert!(!receipt(fixture, job.key, "SM1", "sent").await);
    assert!(!receipt(fixture, job.key, "SM1", "queued").await);
    assert_eq!(fixture.send("a", job.key).await.row.receipt.as_deref(), Some("delivered"));
}

pub async fn a_receipt_of_an_earlier_message_goes_with_the_next_one(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    assert!(receipt(fixture, job.key, "SM1", "undelivered").await);
    fixture.settle(vec![outcome(&job, SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
    assert_eq!(fixture.send("a", job.key).await.row.receipt.as_deref(), Some("undelivered"));
    let job = fixture.claim_due(Sms, 1).await.pop().expect("it is due");
    fixture.settle(vec![sent(&job, "SM2")]).await;
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.external_id.as_deref(), Some("SM2"));
    assert!(send.row.receipt.is_none() && send.row.receipt_at.is_none(), "{send:?}");
}

pub async fn a_receipt_of_a_second_message_may_overtake_its_outcome(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    assert!(receipt(fixture, job.key, "SM1", "undelivered").await);
    fixture.settle(vec![outcome(&job, SendState::Due { at: Timestamp::UNIX_EPOCH })]).await;
    assert!(!receipt(fixture, job.key, "SM2", "delivered").await, "nothing is being sent");
    let job = fixture.claim_due(Sms, 1).await.pop().expect("it is due");
    assert!(receipt(fixture, job.key, "SM2", "delivered").await);
    fixture.settle(vec![sent(&job, "SM2")]).await;
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.external_id.as_deref(), Some("SM2"));
    assert_eq!(send.row.receipt.as_deref(), Some("delivered"));
}

pub async fn a_receipt_in_unknown_words_is_no_obstacle(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    fixture.settle(vec![sent(&job, "SM1")]).await;
    assert!(receipt(fixture, job.key, "SM1", "sent (30003)").await);
    assert!(!receipt(fixture, job.key, "SM1", "queued").await, "a code changes no order");
    assert!(receipt(fixture, job.key, "SM1", "pondered").await);
    assert!(receipt(fixture, job.key, "SM1", "undelivered (30003)").await);
    assert!(!receipt(fixture, job.key, "SM1", "delivered").await);
}
