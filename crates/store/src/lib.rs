//! The only crate that knows databases. Small traits of domain verbs, one folder per database behind them, and one
//! conformance suite that each has to pass. What may differ is SQL; what decides is the domain.

/// Every statement of a database, from the `.sql` file of its name. The list lets a test prepare each and look at its
/// plan.
macro_rules! statements {
    ($($constant:ident = $file:literal;)+) => {
        $(pub const $constant: &str = include_str!(concat!("sql/", $file, ".sql"));)+

        /// Name and text of each.
        #[cfg(test)]
        pub const ALL: &[(&str, &str)] = &[$(($file, $constant)),+];
    };
}

mod audience;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod dead_letter;
mod event;
mod examine;
mod fan_out;
mod instance;
mod lease;
mod outbox;
pub mod postgres;
mod queue_age;
mod retain;
mod row;
mod send;
mod send_admin;
pub mod sqlite;
mod trace;

use std::fmt::Debug;

use async_trait::async_trait;
use campanile_domain::time::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;

pub use context::{ContextStore, Contexts};
pub use dead_letter::{DeadLetterFilter, DeadLetterStore, Replayed, RerenderedTexts, RowText};
pub use event::{Acceptance, EventStore};
pub use examine::{Examined, Identity};
pub use fan_out::{
    Chunk, ChunkRow, Claim, ClaimedEvent, FanOutClaim, FanOutCommit, FanOutStep, FanOutStore, NewChunk,
};
pub use instance::{Instance, InstanceId, InstanceStore};
pub use lease::{Acquisition, LeaseStore};
pub use outbox::{ChunkId, OutboxStore, RepublishCursor, Republished};
pub use queue_age::{QueueAgeStore, QueueAges};
pub use retain::{Horizon, RetainStore, Retained};
pub use row::{JsonRow, RowFilter, RowStore, Table};
pub use send::{
    AddressClaim, Capture, ClaimId, DeadLetter, Devices, ExpiredClaim, FailedMessage, NewSend, PublishStamp,
    Receipt, Received, ReceivedKey, SendJob, SendStore, Settled, Settlement,
};
pub use send_admin::{Resolution, Resolved, SendAdminStore, SendCursor, SendFilter, SendPage};
pub use trace::{EventFilter, Trace, TraceFilter, TraceStore};

/// Everything that the engine asks of a database. Each method is one transaction.
#[async_trait]
pub trait Store:
    EventStore
    + FanOutStore
    + OutboxStore
    + SendStore
    + ContextStore
    + SendAdminStore
    + DeadLetterStore
    + RetainStore
    + LeaseStore
    + InstanceStore
    + RowStore
    + TraceStore
    + QueueAgeStore
    + Debug
    + Send
    + Sync
{
    /// The database's clock, by which leases and due times are compared.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// `sqlite` or `postgres`.
    fn name(&self) -> &'static str;

    /// Tells this database from every other, also from one at the same address. Says nothing about it.
    async fn identity(&self) -> Result<String, StoreError>;

    /// Tells other instances, where the database can. Nothing depends on it.
    async fn notify(&self, _signal: Signal) -> Result<(), StoreError> {
        Ok(())
    }

    /// Lets producers know for a while, where the database can, that they need not tell of each event: whoever asks for
    /// it looks all the time. Comes back when that is not so any more, or soon. Nothing depends on it.
    async fn suppress_notify(&self, mut requested: watch::Receiver<bool>) -> Result<(), StoreError> {
        // Nobody who could ask any more is the same as nobody who does.
        requested.wait_for(|requested| !*requested).await.ok();
        Ok(())
    }

    /// What others tell, where the database can.
    fn subscribe(&self) -> Option<Receiver<Signal>> {
        None
    }
}

/// A short hash, since it is shown to whoever asks.
fn identity(facts: &[&str]) -> String {
    let hash = Sha256::digest(facts.join("/"));
    let beginning = hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{beginning:016x}")
}

/// What began to wait in the database for whoever takes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Events,
    Chunks,
    Sends,
}

impl Signal {
    pub const ALL: [Signal; 3] = [Signal::Events, Signal::Chunks, Signal::Sends];
}

/// Variants are named by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The infrastructure failed: back off and try again. Never counts against a row.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// Somebody else got there first: let go.
    #[error("the work was taken over: {0}")]
    Lost(String),
    /// The data was refused: bisect, and count against the culprit.
    #[error("the database refused the data: {0}")]
    Refused(String),
    /// The rows belong to somebody else: change them there.
    #[error("{0}")]
    ReadOnly(String),
    /// The database can't be used as it is: tell the operator.
    #[error("{0}")]
    Unusable(String),
}
