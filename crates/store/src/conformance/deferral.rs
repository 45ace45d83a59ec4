//! Checks deferred sends, and sends whose provider did not answer: which records are kept, and which step clears them.

use std::time::Duration;

use campanile_domain::access::audit::Actor;
use campanile_domain::channel::Channel::Email;
use campanile_domain::send::{DEFERRED_TOO_LONG, Deferral, History, OutcomeKind, SendState};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;

use super::Fixture;
use super::setup::outcome;
use crate::{
    DeadLetterFilter, InstanceId, RerenderedTexts, Resolution, Resolved, SendFilter, SendJob, Settlement,
    Shown,
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

/// The deferrals of the only send, as the trace and each list show them.
async fn shown(fixture: &Fixture, id: &str) -> Vec<(Option<Timestamp>, Shown<u32>)> {
    let mut rows = vec![fixture.trace(id).await.sends.remove(0).row];
    let status = rows[0].status.typed().copied();
    assert!(status.is_some(), "{rows:?}");
    let newest = SendFilter { limit: 10, ..SendFilter::default() };
    let of_event = SendFilter { event_id: Some(id.to_owned()), ..newest.clone() };
    let of_status = SendFilter { status, ..newest.clone() };
    for filter in [newest, of_event, of_status] {
        let page = fixture.store.list_sends(filter).await.expect("the database is there");
        rows.extend(page.items.into_iter().map(|send| send.row));
    }
    assert_eq!(rows.len(), 4);
    rows.into_iter().map(|row| (row.deferred_since.and_then(|since| since.at()), row.deferrals)).collect()
}

/// The expected result of `shown`: this many deferrals since [`SINCE`].
fn everywhere(deferrals: u32) -> Vec<(Option<Timestamp>, Shown<u32>)> {
    let since = SINCE.parse().ok().filter(|_| deferrals > 0);
    vec![(since, Shown::Typed(deferrals)); 4]
}

pub async fn a_deferral_is_no_attempt_and_stands_on_the_send(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    assert_eq!(shown(fixture, "a").await, everywhere(0));
    assert!(fixture.settle(vec![deferred(&job, DUE, 1)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Due);
    assert_eq!(send.row.attempt_count, 0);
    assert_eq!(send.row.last_error.as_deref(), Some("451 greylisted"));
    assert_eq!(send.row.provider.as_deref(), Some("provider"));
    assert_eq!(send.attempts[0].row.outcome, "DEFERRED");
    assert_eq!(shown(fixture, "a").await, everywhere(1));
    let again = due(fixture).await;
    assert_eq!((again.attempt, again.history), (1, history(1)));
    assert!(fixture.settle(vec![deferred(&again, DUE, 2)]).await.is_empty());
    let last = due(fixture).await;
    assert_eq!(last.history, history(2));
    assert!(fixture.settle(vec![outcome(&last, SENT)]).await.is_empty());
    let send = fixture.send("a", job.key).await;
    assert_eq!(send.row.status, SendStatus::Sent);
    assert_eq!(send.row.attempt_count, 1);
    assert_eq!(send.attempts.len(), 3, "the success is kept, too");
    assert_eq!(shown(fixture, "a").await, everywhere(2));
}

pub async fn a_send_that_was_deferred_for_too_long_is_a_dead_letter_and_a_replay_begins_anew(
    fixture: &Fixture,
) {
    let job = fixture.sending("a", Email).await;
    let failed = SendState::Failed { code: DEFERRED_TOO_LONG };
    assert!(fixture.settle(vec![deferred(&job, failed, 27)]).await.is_empty());
    let dead_letters = fixture.trace("a").await.dead_letters;
    assert_eq!(dead_letters[0].reason, "DEFERRED_TOO_LONG");
    let all = DeadLetterFilter { limit: 10, ..DeadLetterFilter::default() };
    fixture
        .store
        .replay(all, RerenderedTexts::default(), &Actor::AdminKey)
        .await
        .expect("the database is there");
    assert_eq!(shown(fixture, "a").await, everywhere(0));
    assert_eq!(due(fixture).await.history, History::default());
}

pub async fn who_lost_the_claim_writes_no_deferral(fixture: &Fixture) {
    let job = fixture.sending("a", Email).await;
    fixture.settle(vec![outcome(&job, DUE)]).await;
    assert_eq!(fixture.settle(vec![deferred(&job, DUE, 1)]).await, [job.key]);
    assert_eq!(shown(fixture, "a").await, everywhere(0));
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
    let resent =
        fixture.store.resolve(job.key, Resolution::Resend, None, InstanceId(1), &Actor::AdminKey).await;
    assert_eq!(resent.expect("the database is there"), Resolved::Done);
    assert_eq!(due(fixture).await.history, unanswered);
}
