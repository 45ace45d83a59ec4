//! The part of AMQP 0-9-1 that this crate uses, as `RabbitMQ` implements it.
//!
//! It handles one connection and its channels. It does not know Campanile's queues, retries nothing and recovers
//! nothing. A broken connection stays broken and reports the reason; its owner opens another. Decision
//! `docs/decisions/0014-amqp-client.md` says why this is not a library.
//!
//! Nothing that a broker sends, or that a message of others contains, causes a panic. Text that is not UTF-8 is read
//! with replacement characters: a message must not be able to end the connection that delivers it.

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

/// AMQP's limit for names and ids.
pub(crate) const MAX_SHORT_BYTES: usize = 255;

/// The rest of a received body is dropped: others may publish bodies larger than the memory.
pub(crate) const MAX_KEPT_BODY_BYTES: usize = crate::DELIVERED_BODY_BYTES;

/// AMQP's reply code for something that does not exist.
pub(crate) const NOT_FOUND: u16 = 404;

/// Why a connection or one of its channels ended.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fault {
    /// The broker closed it and gave a reason.
    #[error("{text} ({code})")]
    Refused { code: u16, text: String },
    /// The network failed, or the other end did.
    #[error("{0}")]
    Broken(String),
    /// A request got no answer, although the connection still receives frames. Drop the channel: its later answers
    /// cannot be matched.
    #[error("it does not answer")]
    Silent,
    /// The other end is not an AMQP 0-9-1 broker.
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
