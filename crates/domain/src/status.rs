//! The statuses in tables and responses, and their permitted successors. `docs/STATES.md` draws them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::schema::{self, schema};

macro_rules! statuses {
    ($(#[$doc:meta])* $name:ident: $about:literal { $($variant:ident = $text:literal => [$($next:ident),*]),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name { $(#[serde(rename = $text)] $variant),+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The permitted next statuses; empty for a final one.
            pub fn next(self) -> &'static [$name] {
                match self { $($name::$variant => &[$($name::$next),*]),+ }
            }
        }

        schema!($name, schema::word($about, &[$($text),+]));

        impl FromStr for $name {
            type Err = UnknownStatus;

            fn from_str(text: &str) -> Result<Self, UnknownStatus> {
                match text { $($text => Ok($name::$variant),)+ _ => Err(UnknownStatus(text.to_owned())) }
            }
        }
    };
}

#[derive(Debug, thiserror::Error)]
#[error("unknown status `{0}`")]
pub struct UnknownStatus(String);

statuses!(
    /// An event, from the producer's commit to the last receipt. A `FAILED` event changes only by a replay. A
    /// `PROCESSED` event changes only when a replay makes one of its rows wait again.
    EventStatus:
    "PENDING waits to be decided; PUBLISHED is decided, and PROCESSED once every message was received; \
     FAILED has a dead letter, and its error begins with a code."
    {
        Pending = "PENDING" => [Published, Processed, Failed, Cancelled],
        Published = "PUBLISHED" => [Processed, Cancelled],
        Processed = "PROCESSED" => [Published],
        Failed = "FAILED" => [Pending],
        Cancelled = "CANCELLED" => [],
    }
);

statuses!(
    /// A row of the second outbox. Only `FAILED` and `CANCELLED` are stored; the other statuses are derived from other
    /// tables.
    OutboxStatus:
    "PENDING waits for the broker, PUBLISHED is with it, DELIVERED was received."
    {
        Pending = "PENDING" => [Published, Delivered, Failed, Cancelled],
        Published = "PUBLISHED" => [Pending, Delivered, Failed, Cancelled],
        Delivered = "DELIVERED" => [],
        Failed = "FAILED" => [Pending],
        Cancelled = "CANCELLED" => [],
    }
);

statuses!(
    /// The delivery of one notification over one channel.
    SendStatus:
    "DUE waits for its time, SENDING is tried now; IN_DOUBT may have arrived, and waits for a person; \
     FAILED has a dead letter, except of channels that are tried once."
    {
        Due = "DUE" => [Sending, Cancelled],
        Sending = "SENDING" => [Sent, Due, Failed, InDoubt, Cancelled],
        Sent = "SENT" => [],
        Failed = "FAILED" => [Due],
        InDoubt = "IN_DOUBT" => [Due, Sent, Failed],
        Cancelled = "CANCELLED" => [],
    }
);

statuses!(
    /// What is known of an event id. It is kept forever.
    ProcessedStatus:
    "PROCESSING while a large audience is told step by step."
    {
        Processing = "PROCESSING" => [Success, Failed],
        Success = "SUCCESS" => [],
        Failed = "FAILED" => [Processing, Success],
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_comes_back_from_its_text() {
        for status in EventStatus::ALL {
            assert_eq!(status.as_str().parse::<EventStatus>().unwrap(), *status);
        }
        for status in SendStatus::ALL {
            assert_eq!(status.as_str().parse::<SendStatus>().unwrap(), *status);
        }
        assert!("sent".parse::<SendStatus>().is_err());
    }

    #[test]
    fn what_was_sent_or_cancelled_stays_so() {
        assert!(SendStatus::Sent.next().is_empty());
        assert!(SendStatus::Cancelled.next().is_empty());
        assert!(EventStatus::Cancelled.next().is_empty());
    }
}
