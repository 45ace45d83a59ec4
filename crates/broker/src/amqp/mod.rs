//! The part of AMQP 0-9-1 that this crate speaks, as `RabbitMQ` speaks it.
//!
//! One connection, its channels, and what the broker says on them. It knows no queue of ours, retries nothing
//! and recovers nothing: a connection that breaks stays broken, says why, and whoever opened it opens
//! another. Why this is not a library: `docs/decisions/0014-amqp-client.md`.
//!
//! Nothing that a broker or a stranger's message contains makes it panic, and text that is not UTF-8 is read
//! with replacement characters: a message must not be able to bring down the connection that delivers it.

mod channel;
mod codec;
mod connection;
mod content;
mod handshake;
mod io;
mod method;

use std::fmt;

pub(crate) use channel::{Channel, Listener};
pub(crate) use codec::{Table, Value};
pub(crate) use connection::Connection;
pub(crate) use content::{Incoming, Outgoing};
pub(crate) use handshake::Login;
pub(crate) use io::Wire;
pub(crate) use method::Request;

/// The longest text that AMQP has room for where a name or an id stands.
pub(crate) const MAX_SHORT_BYTES: usize = 255;

/// Nobody needs more of a body that arrives, and a stranger may publish more than there is memory.
pub(crate) const MAX_KEPT_BODY_BYTES: usize = crate::DELIVERED_BODY_BYTES;

/// What the broker says when something that was asked for does not exist.
pub(crate) const NOT_FOUND: u16 = 404;

/// Why a connection, or one channel of it, ended.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fault {
    /// The broker closed it, and said why.
    #[error("{text} ({code})")]
    Refused { code: u16, text: String },
    /// The network, or the other end of it.
    #[error("{0}")]
    Broken(String),
    /// One request was not answered, on a connection on which the broker goes on to speak. What its channel says later
    /// belongs to nobody; drop it.
    #[error("it does not answer")]
    Silent,
    /// Somebody answers, who is no broker of this kind.
    #[error("the server does not speak AMQP 0-9-1")]
    NotAmqp,
}

impl Fault {
    pub(crate) fn broken(cause: impl fmt::Display) -> Self {
        Self::Broken(format!("{cause}"))
    }

    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Broken(_) | Self::Silent | Self::NotAmqp => None,
        }
    }
}
