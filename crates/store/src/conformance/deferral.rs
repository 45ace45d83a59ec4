//! Sends that were deferred, and those whose provider did not answer: what is kept of it, and who forgets it.

use std::time::Duration;

use campanile_domain::channel::Channel::Email;
use campanile_domain::send::{DEFERRED_TOO_LONG, Deferral, History, OutcomeKind, SendState};
use campanile_domain::status::SendStatus;
use campanile_domain::time::{Timestamp, to_text};
use serde_json::{Value, json};

use super::Fixture;
use super::setup::{outcome, text};
use crate::{
    DeadLetterFilter, InstanceId, JsonRow, RerenderedTexts, Resolution, Resolved, SendFilter, SendJob,
    Settlement, TraceFilter,
};

const SINCE: &str = "2026-11-18T10:00:00.000Z";

fn history(count: u32) -> History {
    let since: Timestamp = SINCE.parse().expect("a time");
    History { deferral: Some(Deferral { since, count }), unanswered: false }
}

fn deferred(job: &SendJob, state: SendState, count: u32) -> Settlement {
    let error = Some("451 greylisted".to_owned());
    Settlement {
        error,
        outcome: OutcomeKind::Deferred,
        history: history(count),
        duration: Duration::ZERO,
        ..outcome(job, state)
    }
}

const DUE: SendState = SendState::Due { at: Timestamp::UNIX_EPOCH };
const SENT: SendState = SendState::Sent { external_id: None, at: Timestamp::UNIX_EPOCH };
const IN_DOUBT: SendState = SendState::InDoubt { since: Timestamp::UNIX_EPOCH };

async fn due(fixture: &Fixture) -> SendJob {
    fixture.claim_due(Email, 1).await.pop().expect("it is due")
}

/// What the trace and every list say of the deferrals of the only send.
async fn shown(fixture: &Fixture, id: &str) -> Vec<(Option<String>, Value)> {
    let all = TraceFilter { limit: 10, ..TraceFilter::default() };
    let trace = fixture.store.trace(&super::setup::event_id(id), all).await.expect("the database is there");
    let mut rows = trace.expect("it is there").sends;
    let status: SendStatus = text(&rows[0], "status").parse().expect("a status");
    let newest = SendFilter { limit: 10, ..SendFilter::default() };
    let of_event = SendFilter { event_id: Some(id.to_owned()), ..newest.clone() };
    let of_status = SendFilter { status: Some(status), ..newest.clone() };
    for filter in [newest, of_event, of_status] {
        rows.extend(fixture.store.list_sends(filter).await.expect("the database is there").items);
    }
    assert_eq!(rows.len(), 4);
    let since = |row: &JsonRow| row["deferred_since"].as_str().and_then(|at| at.parse().ok()).map(to_text);
    rows.iter().map(|row| (since(row), row["deferrals"].clone())).collect()
}

pub async fn a_deferral_is_no_attempt_and_stands_on_the_send(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    assert_eq!(shown(fixture, "a").await, vec![(None, json!(0)); 4]);
    assert!(fixture.settle(vec![deferred(&job, DUE, 1)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("DUE", &json!(0)));
    assert_eq!((text(&send, "last_error"), text(&send, "provider")), ("451 greylisted", "provider"));
    assert_eq!(send["attempts"][0]["outcome"], "DEFERRED");
    assert_eq!(shown(fixture, "a").await, vec![(Some(SINCE.to_owned()), json!(1)); 4]);
    let again = due(fixture).await;
    assert_eq!((again.attempt, again.history), (1, history(1)));
    assert!(fixture.settle(vec![deferred(&again, DUE, 2)]).await.is_empty());
    let last = due(fixture).await;
    assert_eq!(last.history, history(2));
    assert!(fixture.settle(vec![outcome(&last, SENT)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!((text(&send, "status"), &send["attempt_count"]), ("SENT", &json!(1)));
    assert_eq!(send["attempts"].as_array().map(Vec::len), Some(3), "the success is kept, too");
    assert_eq!(shown(fixture, "a").await, vec![(Some(SINCE.to_owned()), json!(2)); 4]);
}

pub async fn a_send_that_was_deferred_for_too_long_is_a_dead_letter_and_a_replay_begins_anew(
    fixture: &Fixture,
) {
    let job = fixture.sending("a", Email).await;
    let failed = SendState::Failed { code: DEFERRED_TOO_LONG };
    assert!(fixture.settle(vec![deferred(&job, failed, 27)]).await.is_empty());
    let dead_letters = fixture.trace("a").await.dead_letters;
    assert_eq!(text(&dead_letters[0], "reason"), "DEFERRED_TOO_LONG");
    let all = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    fixture.store.replay(all, RerenderedTexts::default()).await.expect("the database is there");
    assert_eq!(shown(fixture, "a").await, vec![(None, json!(0)); 4]);
    assert_eq!(due(fixture).await.history, History::default());
}

pub async fn who_lost_the_claim_writes_no_deferral(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    fixture.settle(vec![outcome(&job, DUE)]).await;
    assert_eq!(fixture.settle(vec![deferred(&job, DUE, 1)]).await, [job.key]);
    assert_eq!(shown(fixture, "a").await, vec![(None, json!(0)); 4]);
}

pub async fn that_nobody_answered_is_known_to_the_next_attempt(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    let unanswered = History { unanswered: true, ..History::default() };
    let no_answer = |job: &SendJob, state| Settlement {
        outcome: OutcomeKind::Unknown,
        history: unanswered,
        ..outcome(job, state)
    };
    assert!(fixture.settle(vec![no_answer(&job, DUE)]).await.is_empty());
    let again = due(fixture).await;
    assert_eq!((again.attempt, again.history), (2, unanswered));
    fixture.advance(super::setup::LEASE * 2).await;
    let expired = fixture.store.expired_claims(10).await.expect("the database is there");
    assert_eq!(expired[0].jobs[0].history, unanswered, "who takes it over knows, too");
    assert!(fixture.settle(vec![no_answer(&again, IN_DOUBT)]).await.is_empty());
    let resent = fixture.store.resolve(job.key, Resolution::Resend, None, InstanceId(1)).await;
    assert_eq!(resent.expect("the database is there"), Resolved::Done);
    assert_eq!(due(fixture).await.history, unanswered);
}
