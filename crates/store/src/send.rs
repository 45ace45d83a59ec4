//! From a received message to a settled send: the claims, leases and fences of delivery.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::event::Failure;
use campanile_domain::id::{EventId, EventType, SendKey, UserRef};
use campanile_domain::priority::Priority;
use campanile_domain::send::SendState;

use crate::StoreError;

/// The fencing token of a claim; it rises with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedKey {
    pub key: SendKey,
    /// Claim the send for an attempt at once; otherwise it is due and waits.
    pub claim: bool,
}

#[derive(Debug, Default)]
pub struct Received {
    /// Sends that this instance claimed; all under one lease.
    pub jobs: Vec<SendJob>,
    /// Keys that no outbox row has: forged, or older than what is kept.
    pub unknown: Vec<SendKey>,
    /// Events of which something was received; they may be complete now.
    pub events: Vec<EventId>,
    /// Rows that were there already: a redelivery.
    pub repeated: u64,
}

/// All that an attempt needs.
#[derive(Debug, Clone, PartialEq)]
pub struct SendJob {
    pub key: SendKey,
    pub claim: ClaimId,
    /// The how-manieth attempt this is, from 1.
    pub attempt: u32,
    pub event_id: EventId,
    pub event_type: EventType,
    pub user: UserRef,
    pub address: String,
    pub title: String,
    pub body: String,
    pub priority: Priority,
}

/// What an attempt came to, to be written where its claim still holds.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub job: SendJob,
    pub state: SendState,
    pub provider: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// False when the provider was not asked; the attempt does not count then.
    pub attempted: bool,
    pub duration: Duration,
    pub capture: Capture,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// The message is written to `captured_message` in the same transaction.
    Keep,
    None,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Sends whose claim had been taken over: nothing was written for them.
    pub lost: Vec<SendKey>,
}

/// A claim whose lease has passed, with what is still `SENDING` under it.
#[derive(Debug)]
pub struct ExpiredClaim {
    pub claim: ClaimId,
    pub jobs: Vec<SendJob>,
}

/// Something that nobody will try again by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetter {
    pub stage: &'static str,
    pub event_id: Option<String>,
    pub recipient: Option<UserRef>,
    pub channel: Option<Channel>,
    pub provider: Option<String>,
    pub reason: String,
    pub error: String,
    pub message: Option<String>,
}

/// A message that was forged, can't be read, or was refused again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedMessage {
    /// Absent when the message has no readable key.
    pub key: Option<SendKey>,
    pub failure: Failure,
    pub message: Option<String>,
}

#[async_trait]
pub trait SendStore {
    /// Writes notifications and sends for these rows; a row that is there already is skipped. Web socket sends are `SENT`.
    async fn receive(
        &self,
        keys: Vec<ReceivedKey>,
        instance: &str,
        lease: Duration,
    ) -> Result<Received, StoreError>;

    /// Claims sends of a channel that are due; by lane, then by due time.
    async fn claim_due(
        &self,
        channel: Channel,
        limit: usize,
        instance: &str,
        lease: Duration,
    ) -> Result<Vec<SendJob>, StoreError>;

    /// One transaction for a batch of outcomes; each is fenced by its claim. `finished` claims hold nothing any more.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        finished: Vec<ClaimId>,
    ) -> Result<Settled, StoreError>;

    /// Claims whose lease has passed. They are not changed: settling their jobs is what takes them over.
    async fn expired_claims(&self, limit: usize) -> Result<Vec<ExpiredClaim>, StoreError>;

    /// Messages that can't be received: a dead letter for each, and the row that it spoke of is `FAILED`, so that nobody
    /// publishes it again.
    async fn fail_messages(&self, failed: Vec<FailedMessage>) -> Result<(), StoreError>;

    /// When the next send of the channel is due, if any waits.
    async fn next_due(
        &self,
        channel: Channel,
    ) -> Result<Option<campanile_domain::time::Timestamp>, StoreError>;
}
