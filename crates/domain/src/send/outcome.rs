//! The outcome of an attempt, as a whole and per address.

use std::time::Duration;

/// The outcome of an attempt, also when no provider was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Sent {
        external_id: Option<String>,
    },
    /// A temporary failure of this message; other messages may succeed.
    Retry {
        after: Option<Duration>,
        error: String,
    },
    /// A temporary failure of the provider, whatever the message: it is away, busy, or refuses our credentials. It
    /// accepted nothing, so another provider may be asked at once.
    Down {
        after: Option<Duration>,
        error: String,
    },
    /// Deferred by the recipient's side, for example by greylisting. It will probably be accepted later and does not
    /// count as an attempt.
    Deferred {
        error: String,
    },
    /// The address accepts only a limited number of messages a second. Nothing was accepted, and it does not count as
    /// an attempt.
    RateLimited {
        after: Duration,
        error: String,
    },
    /// A permanent failure: a repetition would not help.
    Rejected {
        error: String,
    },
    /// The template failed before a provider was asked. A repetition would not help.
    TemplateFailed {
        error: String,
    },
    /// The time to live ended before a provider was asked.
    Expired {
        error: String,
    },
    /// The provider may have accepted the message, and no record tells.
    Unknown {
        error: String,
    },
    /// The provider has the whole message and never answered. Such a doubt is repeated at most once.
    Unanswered {
        error: String,
    },
    /// The provider accepted, but its answer names no message. Such a doubt is never repeated.
    Unclear {
        error: String,
    },
    /// Released before a provider was asked, for example because the lease was too short.
    NotAttempted {
        after: Duration,
    },
}

/// The kind of an outcome, as stored in `send_attempt.outcome`. A doubt stays recognisable, whatever followed from it.
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

    /// Whether the provider was asked.
    pub fn is_attempt(self) -> bool {
        match self {
            OutcomeKind::NotAttempted => false,
            OutcomeKind::Sent
            | OutcomeKind::Retry
            | OutcomeKind::Deferred
            | OutcomeKind::Rejected
            | OutcomeKind::Unknown => true,
        }
    }

    /// The attempts so far, where the attempt of this number ended so. One that did not take place does not count, nor
    /// does a deferral.
    pub fn attempts_after(self, number: u32) -> u32 {
        match self {
            OutcomeKind::Deferred | OutcomeKind::NotAttempted => number.saturating_sub(1),
            OutcomeKind::Sent | OutcomeKind::Retry | OutcomeKind::Rejected | OutcomeKind::Unknown => number,
        }
    }
}

impl Outcome {
    /// Released, to be claimed again at once.
    pub const RELEASED: Outcome = Outcome::NotAttempted { after: Duration::ZERO };

    /// The error text, if there was an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Outcome::Retry { error, .. }
            | Outcome::Down { error, .. }
            | Outcome::Deferred { error }
            | Outcome::RateLimited { error, .. }
            | Outcome::Rejected { error }
            | Outcome::TemplateFailed { error }
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
            Outcome::Rejected { .. } | Outcome::TemplateFailed { .. } | Outcome::Expired { .. } => {
                OutcomeKind::Rejected
            }
            Outcome::Unknown { .. } | Outcome::Unanswered { .. } | Outcome::Unclear { .. } => {
                OutcomeKind::Unknown
            }
            Outcome::RateLimited { .. } | Outcome::NotAttempted { .. } => OutcomeKind::NotAttempted,
        }
    }
}

/// The final result of one address. It gets no further attempt, whatever becomes of the send's other addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressResult {
    pub address: String,
    pub end: AddressOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressOutcome {
    Sent {
        external_id: Option<String>,
    },
    Rejected {
        error: String,
    },
    /// The provider says that the address no longer exists. Nothing is sent to it again.
    Dead {
        reason: String,
    },
}
