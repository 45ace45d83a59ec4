//! Checks what is written about an attempt, and when nothing is written.

use std::time::Duration;

use campanile_domain::channel::Channel::{Email, Push, Slack, Sms};
use campanile_domain::id::{UserId, UserTypeName};
use campanile_domain::send::{EXHAUSTED, OutcomeKind, REJECTED, SendState};
use campanile_domain::status::SendStatus;
use campanile_domain::time::{Timestamp, later};

use super::Fixture;
use super::setup::{LEASE, claimed, column, customer, event, outcome, rows};
use crate::{Capture, CapturedRow, InstanceId, SendJob, Settlement, Shown};

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

async fn captured(fixture: &Fixture) -> Vec<CapturedRow> {
    fixture.store.list_captured(None, 0, 100).await.expect("the database is there")
}

pub async fn a_first_success_is_sent_and_leaves_no_attempt(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    assert!(fixture.settle(vec![sent(&job)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.attempt_count, 1);
    assert_eq!(send.row.provider.as_deref(), Some("provider"));
    assert_eq!(send.row.external_id.as_deref(), Some("ext-1"));
    assert!(send.row.sent_at.is_some() && send.row.last_error.is_none() && send.row.lease_until.is_none());
    assert!(send.attempts.is_empty());
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
    assert_eq!(messages[0].html.as_deref(), Some("<p>è</p>"));
    assert_eq!(messages[1].html, None);
    let message = &messages[0];
    assert_eq!(message.event_id.as_str(), "a");
    assert_eq!(message.channel, Email);
    assert_eq!(message.user.user_type.as_str(), "CUSTOMER");
    assert_eq!(message.user.user_id.as_str(), "42");
    assert_eq!(message.address, a.address);
    assert_eq!(message.title, a.title.as_str());
    assert_eq!(message.body, a.body.as_str());
}

pub async fn a_retry_is_due_and_its_attempt_is_kept(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let retry = due_in(fixture, &job, LEASE * 5).await;
    assert!(fixture.settle(vec![retry]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Due);
    assert_eq!(send.row.attempt_count, 1);
    assert_eq!(send.row.last_error.as_deref(), Some("busy"));
    assert!(send.row.next_attempt_at.is_some() && send.row.sent_at.is_none());
    let attempts = &send.attempts;
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].row.outcome, "RETRY");
    assert_eq!(attempts[0].row.error.as_deref(), Some("busy"));
    assert_eq!(attempts[0].row.provider.as_deref(), Some("provider"));
    assert_eq!(attempts[0].row.duration_ms, 5);
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
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.attempt_count, 2);
    assert!(send.row.last_error.is_none());
    assert_eq!(column(&send.attempts, |send| send.row.outcome.as_str()), ["RETRY", "SENT"]);
}

pub async fn a_send_that_failed_has_a_dead_letter(fixture: &Fixture) {
    let job = fixture.sending("a", Sms).await;
    assert!(fixture.settle(vec![failed(&job, EXHAUSTED)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Failed);
    assert_eq!(send.row.last_error.as_deref(), Some("EXHAUSTED: busy"));
    assert_eq!(column(&send.attempts, |send| send.row.outcome.as_str()), ["REJECTED"]);
    let dead_letters = fixture.trace("a").await.dead_letters;
    assert_eq!(dead_letters.len(), 1);
    let dead_letter = &dead_letters[0];
    assert_eq!(dead_letter.stage, "send");
    assert_eq!(dead_letter.reason, "EXHAUSTED");
    assert_eq!(dead_letter.error, "EXHAUSTED: busy");
    assert_eq!(dead_letter.provider.as_deref(), Some("provider"));
    assert_eq!(dead_letter.recipient_type.as_ref().map(UserTypeName::as_str), Some("CUSTOMER"));
    assert_eq!(dead_letter.recipient_id.as_ref().map(UserId::as_str), Some("42"));
    assert_eq!(dead_letter.channel, Some(Shown::Typed(Sms)));
    assert!(fixture.claim_due(Sms, 10).await.is_empty());
}

pub async fn a_best_effort_channel_fails_without_a_dead_letter(fixture: &Fixture) {
    let job = fixture.sending("a", Slack).await;
    assert!(fixture.settle(vec![failed(&job, EXHAUSTED)]).await.is_empty());
    assert_eq!(fixture.send("a", job.key).await.row.status, SendStatus::Failed);
    assert!(fixture.trace("a").await.dead_letters.is_empty());
}

pub async fn a_send_in_doubt_is_left_to_a_person(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let doubt = outcome(&job, SendState::InDoubt { since: Timestamp::UNIX_EPOCH });
    assert!(fixture.settle(vec![doubt]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::InDoubt);
    assert_eq!(send.row.attempt_count, 1);
    assert_eq!(column(&send.attempts, |send| send.row.outcome.as_str()), ["UNKNOWN"]);
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
    assert_eq!(send.row.status, SendStatus::Due);
    assert_eq!(send.row.attempt_count, 0);
    assert!(send.attempts.is_empty() && send.row.provider.is_none());
    let job = fixture.claim_due(Email, 1).await.remove(0);
    assert_eq!(job.attempt, 1);
    let retry = due_in(fixture, &job, Duration::ZERO).await;
    fixture.settle(vec![retry]).await;
    let job = fixture.claim_due(Email, 1).await.remove(0);
    let second = release_job(due_in(fixture, &job, Duration::ZERO).await);
    fixture.settle(vec![second]).await;
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.attempt_count, 1);
    assert_eq!(send.attempts.len(), 1);
    assert_eq!(send.row.provider.as_deref(), Some("provider"));
    assert_eq!(send.row.last_error.as_deref(), Some("busy"));
}

pub async fn a_send_that_fails_without_an_attempt_says_why(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let error = Some("no provider is configured".to_owned());
    let failure = Settlement { outcome: OutcomeKind::NotAttempted, error, ..failed(&job, REJECTED) };
    assert!(fixture.settle(vec![failure]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Failed);
    assert_eq!(send.row.attempt_count, 0);
    assert_eq!(send.row.last_error.as_deref(), Some("REJECTED: no provider is configured"));
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
    assert_eq!(fixture.send("a", job.key).await.row.status, SendStatus::Sending);
    assert!(fixture.settle(vec![failed(&job, REJECTED)]).await.is_empty());
    let late = [kept(sent(&job)), failed(&job, EXHAUSTED), due_in(fixture, &job, Duration::ZERO).await];
    assert_eq!(fixture.settle(late.to_vec()).await, [job.key; 3]);
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Failed);
    assert_eq!(send.row.last_error.as_deref(), Some("REJECTED: busy"));
    assert_eq!(send.attempts.len(), 1);
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
    assert_eq!(
        column(&fixture.trace("a").await.sends, |send| send.row.status.clone()),
        [SendStatus::Sent, SendStatus::Sent, SendStatus::Sent]
    );
}

/// An instance that was paused past its lease may claim a send again before it writes the outcome of its first attempt.
pub async fn of_two_outcomes_of_a_send_only_the_one_under_the_present_claim_counts(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    fixture.settle(vec![due_in(fixture, &job, Duration::ZERO).await]).await;
    let again = fixture.claim_due(Email, 1).await.pop().expect("it is due");
    let kept = |settlement: Settlement| Settlement { capture: Capture::Keep { html: None }, ..settlement };
    let both = vec![kept(sent(&job)), kept(sent(&again))];
    assert_eq!(fixture.settle(both).await, [job.key], "one of them was lost");
    assert_eq!(captured(fixture).await.len(), 1);
}
