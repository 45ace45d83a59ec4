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
    /// Failed for good: no repetition would help.
    Rejected {
        error: String,
    },
    /// Its template fails: nobody was asked, and no repetition would help.
    Unwritable {
        error: String,
    },
    /// Nobody can know: the provider may have accepted it, and we have no record.
    Unknown {
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
    Rejected,
    Unknown,
    NotAttempted,
}

impl OutcomeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            OutcomeKind::Sent => "SENT",
            OutcomeKind::Retry => "RETRY",
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
            | Outcome::Rejected { error }
            | Outcome::Unwritable { error }
            | Outcome::Unknown { error } => Some(error),
            Outcome::Sent { .. } | Outcome::NotAttempted { .. } => None,
        }
    }

    pub fn kind(&self) -> OutcomeKind {
        match self {
            Outcome::Sent { .. } => OutcomeKind::Sent,
            Outcome::Retry { .. } | Outcome::Down { .. } => OutcomeKind::Retry,
            Outcome::Rejected { .. } | Outcome::Unwritable { .. } => OutcomeKind::Rejected,
            Outcome::Unknown { .. } => OutcomeKind::Unknown,
            Outcome::NotAttempted { .. } => OutcomeKind::NotAttempted,
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
}

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
}

/// One attempt that is over: the how-manieth it was, and over which channel.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub channel: Channel,
    /// Counts from 1.
    pub number: u32,
    pub jitter: f64,
}

pub const EXHAUSTED: &str = "EXHAUSTED";
pub const REJECTED: &str = "REJECTED";
pub const CRASHED: &str = "CRASHED";
/// Also of a row whose title or body can't be written, which is then never sent.
pub const TEMPLATE_ERROR: &str = "TEMPLATE_ERROR";

pub fn after(outcome: Outcome, attempt: Attempt, policy: &SendPolicy, now: Timestamp) -> SendState {
    match outcome {
        Outcome::Sent { external_id } => SendState::Sent { external_id, at: now },
        Outcome::Rejected { .. } => SendState::Failed { code: REJECTED },
        Outcome::Unwritable { .. } => SendState::Failed { code: TEMPLATE_ERROR },
        Outcome::Retry { after, .. } | Outcome::Down { after, .. } => {
            match policy.delay(attempt.channel, attempt.number, attempt.jitter) {
                Some(delay) => SendState::Due { at: later(now, delay.max(after.unwrap_or_default())) },
                None => SendState::Failed { code: EXHAUSTED },
            }
        }
        Outcome::Unknown { error } if attempt.channel.is_retried() => match policy.on_doubt {
            OnDoubt::Hold => SendState::InDoubt { since: now },
            OnDoubt::Resend => after(Outcome::Retry { after: None, error }, attempt, policy, now),
        },
        Outcome::Unknown { .. } => SendState::Failed { code: CRASHED },
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
        }
    }

    fn attempt(channel: Channel, number: u32) -> Attempt {
        Attempt { channel, number, jitter: 1.0 }
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

    #[test]
    fn best_effort_channels_have_one_attempt_and_no_doubt() {
        let slack = attempt(Channel::Slack, 1);
        let failed = |code| SendState::Failed { code };
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
        for outcome in [sent, retry(None), rejected, unknown(), Outcome::LET_GO] {
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
