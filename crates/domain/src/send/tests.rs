//! Every outcome and the state that follows.

use super::*;
use crate::status::SendStatus;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn policy(on_doubt: OnDoubt) -> SendPolicy {
    SendPolicy {
        max_attempts: 3,
        backoff_base: Duration::from_secs(10),
        backoff_cap: Duration::from_mins(15),
        on_doubt,
        defer_for: Duration::from_hours(24),
    }
}

fn attempt(channel: Channel, number: u32) -> Attempt {
    Attempt { channel, number, jitter: 1.0, history: History::default() }
}

fn retry(after: Option<Duration>) -> Outcome {
    Outcome::Retry { after, error: "busy".to_owned() }
}

fn unknown() -> Outcome {
    Outcome::Unknown { error: "died".to_owned() }
}

fn due(seconds: u64) -> SendState {
    SendState::Due { at: later(NOW, Duration::from_secs(seconds)) }
}

#[test]
fn retries_back_off_exponentially_and_end() {
    let p = SendPolicy { max_attempts: 12, ..policy(OnDoubt::Resend) };
    assert_eq!(after(retry(None), attempt(Channel::Email, 1), &p, NOW), due(10));
    assert_eq!(after(retry(None), attempt(Channel::Email, 2), &p, NOW), due(20));
    assert_eq!(after(retry(None), attempt(Channel::Email, 11), &p, NOW), due(900));
    let ended = after(retry(None), attempt(Channel::Email, 12), &p, NOW);
    assert_eq!(ended, SendState::Failed { code: EXHAUSTED });
}

#[test]
fn retry_after_is_honoured_when_it_is_later() {
    let wait = Some(Duration::from_mins(2));
    assert_eq!(after(retry(wait), attempt(Channel::Sms, 1), &policy(OnDoubt::Resend), NOW), due(120));
}

#[test]
fn jitter_spreads_from_nothing_to_the_whole_delay() {
    let none = Attempt { jitter: 0.0, ..attempt(Channel::Push, 1) };
    assert_eq!(after(retry(None), none, &policy(OnDoubt::Resend), NOW), due(0));
}

#[test]
fn doubt_is_resent_or_held_by_policy() {
    let first = attempt(Channel::Email, 1);
    assert_eq!(after(unknown(), first, &policy(OnDoubt::Resend), NOW), due(10));
    assert_eq!(after(unknown(), first, &policy(OnDoubt::Hold), NOW), SendState::InDoubt { since: NOW });
    let last = after(unknown(), attempt(Channel::Email, 3), &policy(OnDoubt::Resend), NOW);
    assert_eq!(last, SendState::Failed { code: EXHAUSTED });
}

fn deferred() -> Outcome {
    Outcome::Deferred { error: "451 greylisted".to_owned() }
}

fn unanswered() -> Outcome {
    Outcome::Unanswered { error: "silence".to_owned() }
}

/// The minutes from the first deferral to each try, and the final state.
fn tries(policy: &SendPolicy) -> (Vec<u64>, SendState) {
    let (mut now, mut history, mut minutes) = (NOW, History::default(), Vec::new());
    loop {
        let attempt = Attempt { history, ..attempt(Channel::Email, 1) };
        history = history.with(&deferred(), now);
        match after(deferred(), attempt, policy, now) {
            SendState::Due { at } => now = at,
            ended => return (minutes, ended),
        }
        minutes.push(crate::time::between(NOW, now).as_secs() / 60);
    }
}

#[test]
fn a_deferred_send_is_tried_for_a_day_and_never_counted() {
    let (minutes, ended) = tries(&policy(OnDoubt::Resend));
    assert_eq!(minutes[..6], [1, 6, 21, 51, 111, 171]);
    assert_eq!(minutes.last(), Some(&(24 * 60)), "the last try is made when the time is up");
    assert_eq!(ended, SendState::Failed { code: DEFERRED_TOO_LONG });
}

#[test]
fn how_long_a_send_may_be_deferred_is_configured() {
    let short = SendPolicy { defer_for: Duration::from_mins(3), ..policy(OnDoubt::Resend) };
    assert_eq!(tries(&short).0, [1, 3]);
    let never = SendPolicy { defer_for: Duration::ZERO, ..short };
    assert_eq!(tries(&never), (vec![], SendState::Failed { code: DEFERRED_TOO_LONG }));
}

fn rate_limited(seconds: u64) -> Outcome {
    Outcome::RateLimited { after: Duration::from_secs(seconds), error: "asked too often".to_owned() }
}

#[test]
fn who_waits_for_a_busy_address_waits_for_as_long_as_configured_and_uses_no_attempt() {
    let policy = SendPolicy { defer_for: Duration::from_mins(10), ..policy(OnDoubt::Resend) };
    let waited = |minutes: u64, wait: u64| {
        let history = History::default().with(&rate_limited(1), NOW);
        let attempt = Attempt { history, ..attempt(Channel::Slack, 1) };
        after(rate_limited(wait), attempt, &policy, due_at(minutes))
    };
    assert_eq!(after(rate_limited(7), attempt(Channel::Slack, 1), &policy, NOW), due(7));
    assert_eq!(waited(9, 7), due(9 * 60 + 7));
    assert_eq!(waited(9, 600), due(600), "the last try is made when the time is up");
    assert_eq!(waited(10, 1), SendState::Failed { code: WAITED_TOO_LONG });
    assert_eq!(rate_limited(1).kind(), OutcomeKind::NotAttempted);
}

#[test]
fn the_first_deferral_counts_and_other_outcomes_change_no_history() {
    let first = History::default().with(&deferred(), NOW);
    let later = first.with(&retry(None), later(NOW, Duration::from_mins(1))).with(&deferred(), due_at(2));
    assert_eq!(later.deferral, Some(Deferral { since: NOW, count: 2 }));
    assert!(!later.unanswered && later.with(&unanswered(), NOW).unanswered);
}

fn due_at(minutes: u64) -> Timestamp {
    later(NOW, Duration::from_mins(minutes))
}

#[test]
fn silence_is_repeated_once_and_then_a_doubt_whatever_the_policy() {
    let doubt = SendState::InDoubt { since: NOW };
    let first = attempt(Channel::Email, 1);
    let second = Attempt { history: first.history.with(&unanswered(), NOW), ..attempt(Channel::Email, 2) };
    assert_eq!(after(unanswered(), first, &policy(OnDoubt::Resend), NOW), due(10));
    assert_eq!(after(unanswered(), second, &policy(OnDoubt::Resend), NOW), doubt);
    assert_eq!(after(unanswered(), first, &policy(OnDoubt::Hold), NOW), doubt);
    let last = after(unanswered(), attempt(Channel::Email, 3), &policy(OnDoubt::Resend), NOW);
    assert_eq!(last, doubt, "nobody knows that it failed");
    // Takeover of a dead instance's sends has a rule of its own.
    assert_eq!(after(unknown(), second, &policy(OnDoubt::Resend), NOW), due(20));
}

fn unclear() -> Outcome {
    Outcome::Unclear { error: "201 and nothing else".to_owned() }
}

#[test]
fn an_acceptance_that_names_no_message_is_a_doubt_whatever_the_policy() {
    for on_doubt in [OnDoubt::Resend, OnDoubt::Hold] {
        let state = after(unclear(), attempt(Channel::Sms, 1), &policy(on_doubt), NOW);
        assert_eq!(state, SendState::InDoubt { since: NOW });
    }
    assert_eq!(unclear().kind(), OutcomeKind::Unknown, "it is counted and shown as a doubt");
}

#[test]
fn what_has_expired_fails_at_once() {
    let expired = Outcome::Expired { error: "too late".to_owned() };
    let state = after(expired, attempt(Channel::Push, 1), &policy(OnDoubt::Resend), NOW);
    assert_eq!(state, SendState::Failed { code: EXPIRED });
}

#[test]
fn best_effort_channels_have_one_attempt_and_no_doubt() {
    let slack = attempt(Channel::Slack, 1);
    let failed = |code| SendState::Failed { code };
    assert_eq!(after(unclear(), slack, &policy(OnDoubt::Hold), NOW), failed(CRASHED));
    assert_eq!(after(retry(None), slack, &policy(OnDoubt::Resend), NOW), failed(EXHAUSTED));
    assert_eq!(after(unknown(), slack, &policy(OnDoubt::Hold), NOW), failed(CRASHED));
}

#[test]
fn a_permanent_error_fails_at_once() {
    let rejected = Outcome::Rejected { error: "no such number".to_owned() };
    let state = after(rejected, attempt(Channel::Sms, 1), &policy(OnDoubt::Resend), NOW);
    assert_eq!(state, SendState::Failed { code: REJECTED });
}

#[test]
fn every_outcome_leads_where_the_state_diagram_allows() {
    let sent = Outcome::Sent { external_id: None };
    let rejected = Outcome::Rejected { error: String::new() };
    let expired = Outcome::Expired { error: String::new() };
    let ends = [sent, rejected, expired, Outcome::RELEASED];
    let doubts = [unknown(), unanswered(), unclear()];
    for outcome in [retry(None), deferred(), rate_limited(1)].into_iter().chain(ends).chain(doubts) {
        for channel in Channel::ALL {
            for number in 1..=4 {
                for on_doubt in [OnDoubt::Resend, OnDoubt::Hold] {
                    let state = after(outcome.clone(), attempt(channel, number), &policy(on_doubt), NOW);
                    assert!(SendStatus::Sending.next().contains(&state.status()));
                }
            }
        }
    }
}

#[test]
fn an_attempt_that_did_not_take_place_does_not_count_and_a_deferral_does_not_either() {
    let after = |kind: OutcomeKind| (kind.is_attempt(), kind.attempts_after(3));
    for kind in [OutcomeKind::Sent, OutcomeKind::Retry, OutcomeKind::Rejected, OutcomeKind::Unknown] {
        assert_eq!(after(kind), (true, 3), "{kind:?}");
    }
    assert_eq!(after(OutcomeKind::Deferred), (true, 2));
    assert_eq!(after(OutcomeKind::NotAttempted), (false, 2));
}
