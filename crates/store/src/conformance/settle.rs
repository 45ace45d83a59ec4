//! What is written of an attempt, and when nothing is.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Push, Slack, Sms};
use campanile_domain::send::{EXHAUSTED, OutcomeKind, REJECTED, SendState};
use campanile_domain::time::{Timestamp, later};
use serde_json::json;

use super::Fixture;
use super::setup::{LEASE, claimed, customer, event, outcome, rows, text, texts};
use crate::{Capture, InstanceId, JsonRow, SendJob, Settlement};

fn sent(job: &SendJob) -> Settlement {
    outcome(job, SendState::Sent { external_id: Some("ext-1".to_owned()), at: Timestamp::UNIX_EPOCH })
}

fn failed(job: &SendJob, code: &'static str) -> Settlement {
    outcome(job, SendState::Failed { code })
}

async fn due_in(fixture: &Fixture, job: &SendJob, delay: Duration) -> Settlement {
    let now = fixture.store.now().await.expect("the database is there");
    outcome(job, SendState::Due { at: later(now, delay) })
}

fn attempts(send: &JsonRow) -> Vec<JsonRow> {
    serde_json::from_value(send["attempts"].clone()).expect("attempts are objects")
}

async fn captured(fixture: &Fixture) -> Vec<JsonRow> {
    fixture.store.list_captured(None, 0, 100).await.expect("the database is there")
}

pub async fn a_first_success_is_sent_and_leaves_no_attempt(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    assert!(fixture.settle(vec![sent(&job)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("SENT", &json!(1)));
    assert_eq!((text(&send, "provider"), text(&send, "external_id")), ("provider", "ext-1"));
    assert!(send["sent_at"].is_string() && send["last_error"].is_null() && send["lease_until"].is_null());
    assert!(attempts(&send).is_empty());
    assert!(captured(fixture).await.is_empty());
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn a_captured_message_is_kept_if_it_was_sent(fixture: &Fixture) {
    let [a, b] = [fixture.sending("a", Email).await, fixture.sending("b", Sms).await];
    let c = fixture.sending("c", Email).await;
    let with = |html: Option<&str>| Capture::Keep { html: html.map(Into::into) };
    let kept = |settlement: Settlement, html| Settlement { capture: with(html), ..settlement };
    let all = vec![
        kept(sent(&a), Some("<p>è</p>")),
        kept(failed(&b, REJECTED), Some("<p>no</p>")),
        kept(sent(&c), None),
    ];
    fixture.settle(all).await;
    let messages = captured(fixture).await;
    assert_eq!(messages.len(), 2);
    assert_eq!((&messages[0]["html"], &messages[1]["html"]), (&json!("<p>è</p>"), &json!(null)));
    let message = &messages[0];
    assert_eq!((text(message, "event_id"), text(message, "channel")), ("a", "EMAIL"));
    assert_eq!((text(message, "user_type"), text(message, "user_id")), ("CUSTOMER", "42"));
    assert_eq!(text(message, "address"), a.address);
    assert_eq!((text(message, "title"), text(message, "body")), (a.title.as_str(), a.body.as_str()));
}

pub async fn a_retry_is_due_and_its_attempt_is_kept(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let retry = due_in(fixture, &job, LEASE * 5).await;
    assert!(fixture.settle(vec![retry]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("DUE", &json!(1)));
    assert_eq!(text(&send, "last_error"), "busy");
    assert!(send["next_attempt_at"].is_string() && send["sent_at"].is_null());
    let attempts = attempts(&send);
    assert_eq!(attempts.len(), 1);
    assert_eq!((text(&attempts[0], "outcome"), text(&attempts[0], "error")), ("RETRY", "busy"));
    assert_eq!((text(&attempts[0], "provider"), &attempts[0]["duration_ms"]), ("provider", &json!(5)));
    assert!(fixture.claim_due(Email, 10).await.is_empty());
    fixture.advance(LEASE * 6).await;
    let again = fixture.claim_due(Email, 10).await;
    assert_eq!((again[0].key, again[0].attempt), (job.key, 2));
}

pub async fn a_success_after_a_retry_is_kept_as_an_attempt(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let retry = due_in(fixture, &job, Duration::ZERO).await;
    fixture.settle(vec![retry]).await;
    let again = fixture.claim_due(Email, 10).await.remove(0);
    assert!(fixture.settle(vec![sent(&again)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("SENT", &json!(2)));
    assert!(send["last_error"].is_null());
    assert_eq!(texts(&attempts(&send), "outcome"), ["RETRY", "SENT"]);
}

pub async fn a_send_that_failed_has_a_dead_letter(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    assert!(fixture.settle(vec![failed(&job, EXHAUSTED)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), text(&send, "last_error")), ("FAILED", "EXHAUSTED: busy"));
    assert_eq!(texts(&attempts(&send), "outcome"), ["REJECTED"]);
    let dead_letters = fixture.trace("a").await.dead_letters;
    assert_eq!(dead_letters.len(), 1);
    let dead_letter = &dead_letters[0];
    assert_eq!((text(dead_letter, "stage"), text(dead_letter, "reason")), ("send", "EXHAUSTED"));
    assert_eq!((text(dead_letter, "error"), text(dead_letter, "provider")), ("EXHAUSTED: busy", "provider"));
    assert_eq!((text(dead_letter, "recipient_type"), text(dead_letter, "recipient_id")), ("CUSTOMER", "42"));
    assert_eq!(text(dead_letter, "channel"), "SMS");
    assert!(fixture.claim_due(Sms, 10).await.is_empty());
}

pub async fn a_best_effort_channel_fails_without_a_dead_letter(fixture: &Fixture) {
    let job = fixture.sending("a", Slack).await;
    assert!(fixture.settle(vec![failed(&job, EXHAUSTED)]).await.is_empty());
    assert_eq!(text(&fixture.send("a", job.key).await, "status"), "FAILED");
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn a_send_in_doubt_is_left_to_a_person(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let doubt = outcome(&job, SendState::InDoubt { since: Timestamp::UNIX_EPOCH });
    assert!(fixture.settle(vec![doubt]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("IN_DOUBT", &json!(1)));
    assert_eq!(texts(&attempts(&send), "outcome"), ["UNKNOWN"]);
    fixture.advance(LEASE * 100).await;
    assert!(fixture.claim_due(Email, 10).await.is_empty());
    assert!(fixture.store.expired_claims(10).await.expect("the database is there").is_empty());
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn what_was_not_attempted_does_not_count(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let release_job =
        |settlement: Settlement| Settlement { outcome: OutcomeKind::NotAttempted, error: None, ..settlement };
    let first = release_job(due_in(fixture, &job, Duration::ZERO).await);
    assert!(fixture.settle(vec![first]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("DUE", &json!(0)));
    assert!(attempts(&send).is_empty() && send["provider"].is_null());
    let job = fixture.claim_due(Email, 1).await.remove(0);
    assert_eq!(job.attempt, 1);
    let retry = due_in(fixture, &job, Duration::ZERO).await;
    fixture.settle(vec![retry]).await;
    let job = fixture.claim_due(Email, 1).await.remove(0);
    let second = release_job(due_in(fixture, &job, Duration::ZERO).await);
    fixture.settle(vec![second]).await;
    let send = fixture.send("a", job.key).await;
    assert_eq!((&send["attempt_count"], attempts(&send).len()), (&json!(1), 1));
    assert_eq!((text(&send, "provider"), text(&send, "last_error")), ("provider", "busy"));
}

pub async fn a_send_that_fails_without_an_attempt_says_why(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let error = Some("no provider is configured".to_owned());
    let failure = Settlement { outcome: OutcomeKind::NotAttempted, error, ..failed(&job, REJECTED) };
    assert!(fixture.settle(vec![failure]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("FAILED", &json!(0)));
    assert_eq!(text(&send, "last_error"), "REJECTED: no provider is configured");
    assert_eq!(fixture.trace("a").await.dead_letters.len(), 1);
}

pub async fn an_outcome_without_its_claim_is_lost_and_nothing_is_written(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let other = fixture.sending("b", Email).await;
    let forged = SendJob { claim: other.claim, ..job.clone() };
    let kept = |settlement: Settlement| Settlement { capture: Capture::Keep { html: None }, ..settlement };
    let lost = fixture
        .store
        .settle(vec![kept(sent(&forged))], vec![], InstanceId(1))
        .await
        .expect("the database is there");
    assert_eq!(lost.lost, [job.key]);
    assert_eq!(text(&fixture.send("a", job.key).await, "status"), "SENDING");
    assert!(fixture.settle(vec![failed(&job, REJECTED)]).await.is_empty());
    let late = [kept(sent(&job)), failed(&job, EXHAUSTED), due_in(fixture, &job, Duration::ZERO).await];
    assert_eq!(fixture.settle(late.to_vec()).await, [job.key; 3]);
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), text(&send, "last_error")), ("FAILED", "REJECTED: busy"));
    assert_eq!(attempts(&send).len(), 1);
    assert!(captured(fixture).await.is_empty());
    assert_eq!(fixture.trace("a").await.dead_letters.len(), 1);
    assert!(fixture.claim_due(Email, 10).await.is_empty());
}

pub async fn what_is_lost_does_not_stop_the_rest(fixture: &Fixture) {
    let rows = rows("a", &customer("42"), &[Email, Push, Sms]);
    fixture.published(&event("a"), &rows).await;
    let all: Vec<_> = rows.iter().map(|row| claimed(row.key)).collect();
    let jobs = fixture.receive(&all).await.jobs;
    assert!(jobs.iter().all(|job| job.claim == jobs[0].claim), "a batch has one claim");
    fixture.store.settle(vec![sent(&jobs[1])], vec![], InstanceId(1)).await.expect("the database is there");
    let lost = fixture.settle(jobs.iter().map(sent).collect()).await;
    assert_eq!(lost, [rows[1].key]);
    assert_eq!(texts(&fixture.trace("a").await.sends, "status"), ["SENT", "SENT", "SENT"]);
}

/// Who was paused past its lease may claim a send again before it writes what became of its first attempt.
pub async fn of_two_outcomes_of_a_send_only_the_one_under_the_present_claim_counts(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    fixture.settle(vec![due_in(fixture, &job, Duration::ZERO).await]).await;
    let again = fixture.claim_due(Email, 1).await.pop().expect("it is due");
    let kept = |settlement: Settlement| Settlement { capture: Capture::Keep { html: None }, ..settlement };
    let both = vec![kept(sent(&job)), kept(sent(&again))];
    assert_eq!(fixture.settle(both).await, [job.key], "one of them was lost");
    assert_eq!(captured(fixture).await.len(), 1);
}
