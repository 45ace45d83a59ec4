//! What a provider, or the lack of one, made of an attempt, as a whole and for each address.

use std::time::Duration;

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
    /// Failed for now, whatever the message: the provider is away, busy, or does not let us in. Nothing was accepted,
    /// so that another provider may be asked at once.
    Down {
        after: Option<Duration>,
        error: String,
    },
    /// Put off by the recipient's side, as greylisting does: it is expected to be taken later, and does not count as an
    /// attempt.
    Deferred {
        error: String,
    },
    /// Its address takes only so many messages a second, and others come first. Nothing was accepted, and it counts as
    /// no attempt.
    RateLimited {
        after: Duration,
        error: String,
    },
    /// Failed for good: no repetition would help.
    Rejected {
        error: String,
    },
    /// Its template fails: nobody was asked, and no repetition would help.
    TemplateFailed {
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

/// The kind of an outcome, as it stands in `send_attempt.outcome`: whatever followed from it, a doubt stays
/// recognisable as one.
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
    pub const RELEASED: Outcome = Outcome::NotAttempted { after: Duration::ZERO };

    /// What went wrong, if something did.
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

/// An address that is done with, whatever becomes of the others of the same send: it gets no further attempt.
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
    /// The provider says that nobody is there any more: it is never sent to again.
    Dead {
        reason: String,
    },
}
