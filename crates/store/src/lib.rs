//! The only crate that accesses databases. Each file covers one concept, with its trait, its types and the code that
//! both databases share. One folder per database implements the traits, and one conformance suite runs against both.
//!
//! Decisions are made in the domain crate. Only SQL may differ between databases.

/// Declares every statement of a database, each from the `.sql` file of its name. Tests use the list to prepare each
/// statement and to check its plan.
macro_rules! statements {
    ($($constant:ident = $file:literal;)+) => {
        $(pub const $constant: &str = include_str!(concat!("sql/", $file, ".sql"));)+

        /// The name and the text of each statement.
        #[cfg(test)]
        pub const ALL: &[(&str, &str)] = &[$(($file, $constant)),+];
    };
}

mod api_key;
mod audience;
mod audit;
mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod dead_letter;
mod decode;
mod error;
mod event;
mod event_search;
mod examine;
mod fan_out;
mod idempotency;
mod instance;
mod named_lease;
mod outbox;
pub mod postgres;
mod queue_age;
mod retain;
mod row;
mod send;
mod send_admin;
mod send_row;
mod shown;
mod signing_key;
pub mod sqlite;
mod stage;
mod trace;

use std::fmt::Debug;

use async_trait::async_trait;
use campanile_domain::time::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;

pub use api_key::{ApiKeyPage, ApiKeyStore, StoredApiKey};
pub use audience::{AudienceReader, AudienceStore};
pub use audit::{AuditOf, AuditRow, AuditStore};
pub use context::{ContextStore, Contexts};
pub use dead_letter::{
    DeadLetterFilter, DeadLetterRow, DeadLetterStore, ListedDeadLetter, Replayed, RerenderedTexts,
};
pub use error::StoreError;
pub use event::{Acceptance, EventStore};
pub use event_search::{EventFilter, EventPage};
pub use examine::{Examined, Identity};
pub use fan_out::{
    Chunk, ChunkRow, Claim, ClaimedEvent, FanOutClaim, FanOutCommit, FanOutStep, FanOutStore, NewChunk,
};
pub use idempotency::{Begun, IdempotencyKey, IdempotencyStore, StoredAnswer};
pub use instance::{Instance, InstanceId, InstanceStore};
pub use named_lease::{Acquisition, LeaseStore};
pub use outbox::{ChunkId, OutboxStore, RepublishCursor, Republished};
pub use queue_age::{QueueAgeStore, QueueAges};
pub use retain::{Horizon, RetainStore, Retained};
pub use row::{RowFilter, RowPage, RowStore, Table, TableRow};
pub use send::{
    Capture, ClaimId, DeadLetter, Devices, ExpiredClaim, FailedMessage, NewSend, PublishStamp, Receipt,
    Received, ReceivedKey, SendJob, SendStore, Settled, Settlement,
};
pub use send_admin::{Resolution, Resolved, SendAdminStore, SendCursor, SendFilter, SendPage};
pub use send_row::{AttemptRow, ListedSend, SendAddressRow, SendRow, TracedAttempt, TracedSend};
pub use shown::Shown;
pub use signing_key::{SigningKey, SigningKeyStore};
pub use stage::{EventStages, SendStages, StageStamp};
pub use trace::{
    CapturedRow, EventRow, ListedEvent, NotificationRow, OutboxView, ProcessedRow, RecipientName, Trace,
    TraceFilter, TraceStore, TracedEvent,
};

/// All operations that the engine needs from a database. Each method is one transaction.
#[async_trait]
pub trait Store:
    EventStore
    + FanOutStore
    + AudienceStore
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
    + ApiKeyStore
    + AuditStore
    + IdempotencyStore
    + SigningKeyStore
    + Debug
    + Send
    + Sync
{
    /// The time by the database's clock. Leases and due times are compared with it.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// `sqlite` or `postgres`.
    fn name(&self) -> &'static str;

    /// An opaque name that differs from that of every other database, even from one at the same address.
    async fn identity(&self) -> Result<String, StoreError>;

    /// Notifies other instances, where the database can do so. Nothing depends on it: they also poll.
    async fn notify(&self, _signal: Signal) -> Result<(), StoreError> {
        Ok(())
    }

    /// Asks producers to suppress notifications for a while, because this instance polls all the time. Returns when the
    /// suppression ends, or soon. A database without notifications does nothing.
    async fn suppress_notify(&self, mut requested: watch::Receiver<bool>) -> Result<(), StoreError> {
        // A sender that is gone counts as no request.
        requested.wait_for(|requested| !*requested).await.ok();
        Ok(())
    }

    /// The notifications of other instances, where the database has them.
    fn subscribe(&self) -> Option<Receiver<Signal>> {
        None
    }
}

/// A short hash, because the health endpoint shows the identity to every client.
fn identity(facts: &[&str]) -> String {
    let hash = Sha256::digest(facts.join("/"));
    let beginning = hash.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{beginning:016x}")
}

/// The kind of work that now waits in the database. The signal wakes the stage that takes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Events,
    Chunks,
    Sends,
}

impl Signal {
    pub const ALL: [Signal; 3] = [Signal::Events, Signal::Chunks, Signal::Sends];
}
