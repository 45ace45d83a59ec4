//! The state of a send after an attempt. One pure function owns the state machine that `docs/STATES.md` describes.

mod address_claim;
mod birth;
mod outcome;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::status::SendStatus;
use crate::time::{Timestamp, later};

pub use address_claim::AddressClaim;
pub use birth::{ON_RECEIPT_PROVIDER, birth};
pub use outcome::{AddressOutcome, AddressResult, Outcome, OutcomeKind};

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

    pub fn is_sent(&self) -> bool {
        self.status() == SendStatus::Sent
    }

    /// The provider's id of a message that was sent.
    pub fn external_id(&self) -> Option<&str> {
        match self {
            SendState::Sent { external_id, .. } => external_id.as_deref(),
            SendState::Due { .. } | SendState::Failed { .. } | SendState::InDoubt { .. } => None,
        }
    }

    /// The code of a final failure.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            SendState::Failed { code } => Some(code),
            SendState::Sent { .. } | SendState::Due { .. } | SendState::InDoubt { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDoubt {
    /// Try again, at the risk of a duplicate. The attempt counts.
    #[default]
    Resend,
    /// Leave the decision to a person.
    Hold,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SendPolicy {
    pub max_attempts: u32,
    pub backoff_base: Duration,
    pub backoff_cap: Duration,
    pub on_doubt: OnDoubt,
    /// How long a send may be deferred, or wait for a busy address, counted from the first time.
    pub defer_for: Duration,
}

/// Delays between the tries of a deferred send. RFC 5321 asks for at least 30 minutes; the first tries come sooner.
const DEFER_DELAYS: [Duration; 4] =
    [Duration::from_mins(1), Duration::from_mins(5), Duration::from_mins(15), Duration::from_mins(30)];
const LAST_DEFER_DELAY: Duration = Duration::from_hours(1);

impl SendPolicy {
    /// Best-effort channels have one attempt.
    pub fn attempts(&self, channel: Channel) -> u32 {
        if channel.is_retried() { self.max_attempts } else { 1 }
    }

    /// The delay before the next attempt: exponential with full jitter. `jitter` is a random number from 0 to 1. `None`
    /// when the attempts are used up.
    fn delay(&self, channel: Channel, attempt: u32, jitter: f64) -> Option<Duration> {
        if attempt >= self.attempts(channel) {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(30);
        let ceiling = self.backoff_base.saturating_mul(1 << doublings).min(self.backoff_cap);
        Some(ceiling.mul_f64(jitter.clamp(0.0, 1.0)))
    }

    /// When to retry a deferred send. The last try is at the end of the period; after it the result is `None`.
    fn deferred_until(&self, deferral: Deferral, now: Timestamp) -> Option<Timestamp> {
        let end = later(deferral.since, self.defer_for);
        let before = usize::try_from(deferral.count.saturating_sub(1)).unwrap_or(usize::MAX);
        let delay = DEFER_DELAYS.get(before).copied().unwrap_or(LAST_DEFER_DELAY);
        (now < end).then(|| later(now, delay).min(end))
    }

    /// When to retry a send whose address is busy. The last try is at the end of the period; after it the result is
    /// `None`.
    fn rate_limited_until(&self, deferral: Deferral, after: Duration, now: Timestamp) -> Option<Timestamp> {
        let end = later(deferral.since, self.defer_for);
        (now < end).then(|| later(now, after).min(end))
    }
}

/// Facts of earlier attempts that affect the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    pub deferral: Option<Deferral>,
    /// A provider once had the whole message and did not answer.
    pub unanswered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferral {
    /// When the send was deferred for the first time.
    pub since: Timestamp,
    pub count: u32,
}

impl History {
    /// The history including this outcome.
    #[must_use]
    pub fn with(self, outcome: &Outcome, now: Timestamp) -> Self {
        match outcome {
            Outcome::Deferred { .. } | Outcome::RateLimited { .. } => {
                History { deferral: Some(self.deferred_at(now)), ..self }
            }
            Outcome::Unanswered { .. } => History { unanswered: true, ..self },
            Outcome::Sent { .. }
            | Outcome::Retry { .. }
            | Outcome::Down { .. }
            | Outcome::Rejected { .. }
            | Outcome::TemplateFailed { .. }
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

/// A finished attempt: its number and its channel.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub channel: Channel,
    /// Counts from 1.
    pub number: u32,
    pub jitter: f64,
    /// The history before this attempt.
    pub history: History,
}

pub const EXHAUSTED: &str = "EXHAUSTED";
pub const REJECTED: &str = "REJECTED";
pub const CRASHED: &str = "CRASHED";
pub const DEFERRED_TOO_LONG: &str = "DEFERRED_TOO_LONG";
pub const WAITED_TOO_LONG: &str = "WAITED_TOO_LONG";
pub const EXPIRED: &str = "EXPIRED";
/// Also the code of a row whose title or body fails to render, which is then never sent.
pub const TEMPLATE_ERROR: &str = "TEMPLATE_ERROR";

pub fn after(outcome: Outcome, attempt: Attempt, policy: &SendPolicy, now: Timestamp) -> SendState {
    match outcome {
        Outcome::Sent { external_id } => SendState::Sent { external_id, at: now },
        Outcome::Rejected { .. } => SendState::Failed { code: REJECTED },
        Outcome::TemplateFailed { .. } => SendState::Failed { code: TEMPLATE_ERROR },
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
        Outcome::RateLimited { after, .. } => {
            match policy.rate_limited_until(attempt.history.deferred_at(now), after, now) {
                Some(at) => SendState::Due { at },
                None => SendState::Failed { code: WAITED_TOO_LONG },
            }
        }
        Outcome::Unanswered { .. } if attempt.history.unanswered => SendState::InDoubt { since: now },
        Outcome::Unanswered { error } => {
            match after(Outcome::Unknown { error }, attempt, policy, now) {
                // It may have been delivered, so it is not marked as failed.
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
mod tests;
