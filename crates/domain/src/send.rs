//! What becomes of a send after an attempt: one pure function owns the state machine of `docs/STATES.md`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::status::SendStatus;
use crate::time::{Timestamp, later};

/// What a provider, or the lack of one, made of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Sent {
        external_id: Option<String>,
    },
    /// Failed for now, and it is about this message: the next one may fare better.
    Retry {
        after: Option<Duration>,
        error: String,
    },
    /// Failed for now, whatever the message: the provider is away, busy, or does not let us in. Nothing was accepted, so that
    /// another provider may be asked at once.
    Down {
        after: Option<Duration>,
        error: String,
    },
    /// Put off by the recipient's side, as greylisting does: it is expected to be taken later, and does not count as an attempt.
    Deferred {
        error: String,
    },
    /// Its address takes only so many messages a second, and others come first. Nothing was accepted, and it counts as no attempt.
    Paced {
        after: Duration,
        error: String,
    },
    /// Failed for good: no repetition would help.
    Rejected {
        error: String,
    },
    /// Its template fails: nobody was asked, and no repetition would help.
    Unwritable {
        error: String,
    },
    /// Its time to live ended before it could be sent: nobody was asked.
    Expired {
        error: String,
    },
    /// Nobody can know: the provider may have accepted it, and we have no record.
    Unknown {
        error: String,
    },
    /// The provider has the whole message and never answered: a doubt that is repeated once at most.
    Unanswered {
        error: String,
    },
    /// The provider said yes, in a way that names no message: a doubt that is never repeated.
    Unclear {
        error: String,
    },
    /// Let go before any provider was asked, for example because the lease would not have lasted.
    NotAttempted {
        after: Duration,
    },
}

/// The kind of an outcome, as it stands in `send_attempt.outcome`: whatever followed from it, a doubt stays recognisable as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeKind {
    Sent,
    Retry,
    Deferred,
    Rejected,
    Unknown,
    NotAttempted,
}

impl OutcomeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            OutcomeKind::Sent => "SENT",
            OutcomeKind::Retry => "RETRY",
            OutcomeKind::Deferred => "DEFERRED",
            OutcomeKind::Rejected => "REJECTED",
            OutcomeKind::Unknown => "UNKNOWN",
            OutcomeKind::NotAttempted => "NOT_ATTEMPTED",
        }
    }
}

impl Outcome {
    /// Let go, to be claimed again at once.
    pub const LET_GO: Outcome = Outcome::NotAttempted { after: Duration::ZERO };

    /// What went wrong, if something did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Outcome::Retry { error, .. }
            | Outcome::Down { error, .. }
            | Outcome::Deferred { error }
            | Outcome::Paced { error, .. }
            | Outcome::Rejected { error }
            | Outcome::Unwritable { error }
            | Outcome::Expired { error }
            | Outcome::Unknown { error }
            | Outcome::Unanswered { error }
            | Outcome::Unclear { error } => Some(error),
            Outcome::Sent { .. } | Outcome::NotAttempted { .. } => None,
        }
    }

    pub fn kind(&self) -> OutcomeKind {
        match self {
            Outcome::Sent { .. } => OutcomeKind::Sent,
            Outcome::Retry { .. } | Outcome::Down { .. } => OutcomeKind::Retry,
            Outcome::Deferred { .. } => OutcomeKind::Deferred,
            Outcome::Rejected { .. } | Outcome::Unwritable { .. } | Outcome::Expired { .. } => {
                OutcomeKind::Rejected
            }
            Outcome::Unknown { .. } | Outcome::Unanswered { .. } | Outcome::Unclear { .. } => {
                OutcomeKind::Unknown
            }
            Outcome::Paced { .. } | Outcome::NotAttempted { .. } => OutcomeKind::NotAttempted,
        }
    }
}

/// An address that is done with, whatever becomes of the others of the same send: it gets no further attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressDone {
    pub address: String,
    pub end: AddressEnd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressEnd {
    Sent {
        external_id: Option<String>,
    },
    Rejected {
        error: String,
    },
    /// The provider says that nobody is there any more: it is never sent to again.
    Dead {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendState {
    Sent { external_id: Option<String>, at: Timestamp },
    Due { at: Timestamp },
    Failed { code: &'static str },
    InDoubt { since: Timestamp },
}

impl SendState {
    pub fn status(&self) -> SendStatus {
        match self {
            SendState::Sent { .. } => SendStatus::Sent,
            SendState::Due { .. } => SendStatus::Due,
            SendState::Failed { .. } => SendStatus::Failed,
            SendState::InDoubt { .. } => SendStatus::InDoubt,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDoubt {
    /// Try again, which may tell somebody twice; counts as an attempt.
    #[default]
    Resend,
    /// Leave it to a person.
    Hold,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SendPolicy {
    pub max_attempts: u32,
    pub backoff_base: Duration,
    pub backoff_cap: Duration,
    pub on_doubt: OnDoubt,
    /// How long a send may be deferred, or wait for a busy address, from the first time on.
    pub defer_for: Duration,
}

/// Delays between the tries of a deferred send: RFC 5321 asks for 30 minutes or more, after sooner ones at first.
const DEFER_DELAYS: [Duration; 4] =
    [Duration::from_mins(1), Duration::from_mins(5), Duration::from_mins(15), Duration::from_mins(30)];
const LAST_DEFER_DELAY: Duration = Duration::from_hours(1);

impl SendPolicy {
    /// Best-effort channels have one attempt.
    pub fn attempts(&self, channel: Channel) -> u32 {
        if channel.is_retried() { self.max_attempts } else { 1 }
    }

    /// Exponential with full jitter: `jitter` is a random number from 0 to 1. `None` when attempts are used up.
    fn delay(&self, channel: Channel, attempt: u32, jitter: f64) -> Option<Duration> {
        if attempt >= self.attempts(channel) {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(30);
        let ceiling = self.backoff_base.saturating_mul(1 << doublings).min(self.backoff_cap);
        Some(ceiling.mul_f64(jitter.clamp(0.0, 1.0)))
    }

    /// When to try a deferred send again; the last try is made when its time is up. `None` after that.
    fn deferred_until(&self, deferral: Deferral, now: Timestamp) -> Option<Timestamp> {
        let end = later(deferral.since, self.defer_for);
        let before = usize::try_from(deferral.count.saturating_sub(1)).unwrap_or(usize::MAX);
        let delay = DEFER_DELAYS.get(before).copied().unwrap_or(LAST_DEFER_DELAY);
        (now < end).then(|| later(now, delay).min(end))
    }

    /// When to try again a send that waits for a busy address; the last try is made when its time is up. `None` after that.
    fn paced_until(&self, deferral: Deferral, after: Duration, now: Timestamp) -> Option<Timestamp> {
        let end = later(deferral.since, self.defer_for);
        (now < end).then(|| later(now, after).min(end))
    }
}

/// What earlier attempts of a send left that decides about the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    pub deferral: Option<Deferral>,
    /// The provider once had the whole message and did not answer.
    pub unanswered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferral {
    /// When it was put off for the first time.
    pub since: Timestamp,
    pub count: u32,
}

impl History {
    /// With this outcome in it.
    #[must_use]
    pub fn with(self, outcome: &Outcome, now: Timestamp) -> Self {
        match outcome {
            Outcome::Deferred { .. } | Outcome::Paced { .. } => {
                History { deferral: Some(self.deferred_at(now)), ..self }
            }
            Outcome::Unanswered { .. } => History { unanswered: true, ..self },
            Outcome::Sent { .. }
            | Outcome::Retry { .. }
            | Outcome::Down { .. }
            | Outcome::Rejected { .. }
            | Outcome::Unwritable { .. }
            | Outcome::Expired { .. }
            | Outcome::Unknown { .. }
            | Outcome::Unclear { .. }
            | Outcome::NotAttempted { .. } => self,
        }
    }

    fn deferred_at(self, now: Timestamp) -> Deferral {
        let before = self.deferral.unwrap_or(Deferral { since: now, count: 0 });
        Deferral { count: before.count.saturating_add(1), ..before }
    }
}

/// One attempt that is over: the how-manieth it was, and over which channel.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub channel: Channel,
    /// Counts from 1.
    pub number: u32,
    pub jitter: f64,
    /// Of the attempts before it.
    pub history: History,
}

pub const EXHAUSTED: &str = "EXHAUSTED";
pub const REJECTED: &str = "REJECTED";
pub const CRASHED: &str = "CRASHED";
pub const DEFERRED_TOO_LONG: &str = "DEFERRED_TOO_LONG";
pub const WAITED_TOO_LONG: &str = "WAITED_TOO_LONG";
pub const EXPIRED: &str = "EXPIRED";
/// Also of a row whose title or body can't be written, which is then never sent.
pub const TEMPLATE_ERROR: &str = "TEMPLATE_ERROR";

pub fn after(outcome: Outcome, attempt: Attempt, policy: &SendPolicy, now: Timestamp) -> SendState {
    match outcome {
        Outcome::Sent { external_id } => SendState::Sent { external_id, at: now },
        Outcome::Rejected { .. } => SendState::Failed { code: REJECTED },
        Outcome::Unwritable { .. } => SendState::Failed { code: TEMPLATE_ERROR },
        Outcome::Expired { .. } => SendState::Failed { code: EXPIRED },
        Outcome::Retry { after, .. } | Outcome::Down { after, .. } => {
            match policy.delay(attempt.channel, attempt.number, attempt.jitter) {
                Some(delay) => SendState::Due { at: later(now, delay.max(after.unwrap_or_default())) },
                None => SendState::Failed { code: EXHAUSTED },
            }
        }
        Outcome::Deferred { .. } => match policy.deferred_until(attempt.history.deferred_at(now), now) {
            Some(at) => SendState::Due { at },
            None => SendState::Failed { code: DEFERRED_TOO_LONG },
        },
        Outcome::Paced { after, .. } => {
            match policy.paced_until(attempt.history.deferred_at(now), after, now) {
                Some(at) => SendState::Due { at },
                None => SendState::Failed { code: WAITED_TOO_LONG },
            }
        }
        Outcome::Unanswered { .. } if attempt.history.unanswered => SendState::InDoubt { since: now },
        Outcome::Unanswered { error } => {
            match after(Outcome::Unknown { error }, attempt, policy, now) {
                // Nobody knows that it failed.
                SendState::Failed { code: EXHAUSTED } => SendState::InDoubt { since: now },
                state => state,
            }
        }
        Outcome::Unknown { error } if attempt.channel.is_retried() => match policy.on_doubt {
            OnDoubt::Hold => SendState::InDoubt { since: now },
            OnDoubt::Resend => after(Outcome::Retry { after: None, error }, attempt, policy, now),
        },
        Outcome::Unclear { .. } if attempt.channel.is_retried() => SendState::InDoubt { since: now },
        Outcome::Unknown { .. } | Outcome::Unclear { .. } => SendState::Failed { code: CRASHED },
        Outcome::NotAttempted { after } => SendState::Due { at: later(now, after) },
    }
}

#[cfg(test)]
mod tests {
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

    /// The minutes from the first deferral to each further try, and how it ends.
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

    fn paced(seconds: u64) -> Outcome {
        Outcome::Paced { after: Duration::from_secs(seconds), error: "asked too often".to_owned() }
    }

    #[test]
    fn who_waits_for_a_busy_address_waits_for_as_long_as_configured_and_uses_no_attempt() {
        let policy = SendPolicy { defer_for: Duration::from_mins(10), ..policy(OnDoubt::Resend) };
        let waited = |minutes: u64, wait: u64| {
            let history = History::default().with(&paced(1), NOW);
            let attempt = Attempt { history, ..attempt(Channel::Slack, 1) };
            after(paced(wait), attempt, &policy, due_at(minutes))
        };
        assert_eq!(after(paced(7), attempt(Channel::Slack, 1), &policy, NOW), due(7));
        assert_eq!(waited(9, 7), due(9 * 60 + 7));
        assert_eq!(waited(9, 600), due(600), "the last try is made when the time is up");
        assert_eq!(waited(10, 1), SendState::Failed { code: WAITED_TOO_LONG });
        assert_eq!(paced(1).kind(), OutcomeKind::NotAttempted);
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
        let second =
            Attempt { history: first.history.with(&unanswered(), NOW), ..attempt(Channel::Email, 2) };
        assert_eq!(after(unanswered(), first, &policy(OnDoubt::Resend), NOW), due(10));
        assert_eq!(after(unanswered(), second, &policy(OnDoubt::Resend), NOW), doubt);
        assert_eq!(after(unanswered(), first, &policy(OnDoubt::Hold), NOW), doubt);
        let last = after(unanswered(), attempt(Channel::Email, 3), &policy(OnDoubt::Resend), NOW);
        assert_eq!(last, doubt, "nobody knows that it failed");
        // What a dead instance left is taken over by its own rule.
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
    fn every_outcome_leads_where_the_picture_allows() {
        let sent = Outcome::Sent { external_id: None };
        let rejected = Outcome::Rejected { error: String::new() };
        let expired = Outcome::Expired { error: String::new() };
        let ends = [sent, rejected, expired, Outcome::LET_GO];
        let doubts = [unknown(), unanswered(), unclear()];
        for outcome in [retry(None), deferred(), paced(1)].into_iter().chain(ends).chain(doubts) {
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
}
