//! The life of a send, from the received message to the settled send: its claims, leases and fencing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::event::Failure;
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::hex::hex;
use campanile_domain::id::{EventId, EventType, SendKey, UserRef};
use campanile_domain::priority::Priority;
use campanile_domain::send::{
    AddressClaim, AddressOutcome, AddressResult, CRASHED, History, OutcomeKind, SendState, birth,
};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::{Instance, InstanceId, StoreError};

/// The fencing token of a claim. Each new claim has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedKey {
    pub key: SendKey,
    /// Whether to claim the send for an attempt at once. Otherwise it is due and waits.
    pub claim: bool,
    /// The stamp of the message, if it has one.
    pub published: Option<PublishStamp>,
}

impl ReceivedKey {
    pub fn birth(&self) -> SendStatus {
        birth(self.key.channel.facts().delivery, self.claim)
    }
}

/// The instance that published a message, and the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishStamp {
    pub at: Timestamp,
    pub by: InstanceId,
}

/// A send that was created by this call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSend {
    pub event_id: EventId,
    pub channel: Channel,
    pub priority: Priority,
    pub event_created_at: Timestamp,
}

#[derive(Debug, Default)]
pub struct Received {
    /// Sends that this instance claimed; all under one lease.
    pub jobs: Vec<SendJob>,
    /// Keys without an outbox row: forged, or older than the retention time.
    pub unknown: Vec<SendKey>,
    /// The rows that were received for the first time.
    pub new: Vec<NewSend>,
    /// Events of the rows that were received before. They may be complete as well.
    pub redelivered_events: Vec<EventId>,
    /// The number of rows that had been received before.
    pub redelivered: u64,
}

/// Everything that an attempt needs.
#[derive(Debug, Clone, PartialEq)]
pub struct SendJob {
    pub key: SendKey,
    pub claim: ClaimId,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The history that earlier attempts left.
    pub history: History,
    pub event_id: EventId,
    pub event_type: EventType,
    pub user: UserRef,
    /// The address. If the channel has several, the unfinished ones, separated by spaces. Empty if all remaining
    /// addresses were marked dead while the send waited.
    pub address: String,
    pub devices: Devices,
    pub title: String,
    pub body: String,
    pub priority: Priority,
    /// When the event was accepted.
    pub event_created_at: Timestamp,
}

/// Which of a send's addresses an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Devices {
    #[default]
    All,
    /// Earlier attempts have finished the other addresses. `any_sent` is whether one of those was sent to.
    Remaining { any_sent: bool },
}

impl SendJob {
    /// The addresses of the send. Only some channels have several.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        let several = self.key.channel.has_many_addresses();
        self.address.split(move |c| several && c == ' ').filter(|address| !address.is_empty())
    }

    /// Removes addresses that were marked dead after the event was decided.
    pub(crate) fn remove_addresses(&mut self, is_dead: impl Fn(&str) -> bool) {
        if self.addresses().any(&is_dead) {
            self.address = self.addresses().filter(|address| !is_dead(address)).collect::<Vec<_>>().join(" ");
        }
    }
}

/// No provider uses longer addresses, and PostgreSQL can't index them.
const MAX_KEPT_ADDRESS_BYTES: usize = 2_000;

/// The outcome of an attempt. It is written only if the attempt's claim still holds.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub job: SendJob,
    pub state: SendState,
    /// Addresses that get no further attempt, whatever the outcome of the others.
    pub done: Vec<AddressResult>,
    pub provider: String,
    /// The error, if there was one.
    pub error: Option<String>,
    /// The kind of outcome. If no provider was asked, it does not count as an attempt.
    pub outcome: OutcomeKind,
    /// The send's history, including this outcome.
    pub history: History,
    pub duration: Duration,
    /// When the attempt began. `None` if there was none, or if its begin is unknown.
    pub attempted_at: Option<Timestamp>,
    pub capture: Capture,
}

impl Settlement {
    /// Attempts so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.outcome.attempts_after(self.job.attempt)
    }

    /// The history to write. `None` if it has not changed, as for nearly all sends.
    pub(crate) fn new_history(&self) -> Option<History> {
        (self.history != self.job.history).then_some(self.history)
    }

    /// The error to store. If the state is final, its code comes first.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.error.as_ref().map(|error| match self.state.code() {
            Some(code) => format!("{code}: {error}"),
            None => error.clone(),
        })
    }

    /// Whether the attempt is stored. A success at the first attempt is not, and neither is an outcome without an
    /// attempt.
    pub(crate) fn keeps_attempt(&self) -> bool {
        let is_first = self.job.attempt == 1 && self.job.history == History::default();
        self.outcome.is_attempt() && !(is_first && self.state.is_sent())
    }

    /// Addresses that no longer reach anyone, with the reason.
    pub(crate) fn dead(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept().filter_map(|done| match &done.end {
            AddressOutcome::Dead { reason } => Some((done.address.as_str(), reason.as_str())),
            AddressOutcome::Sent { .. } | AddressOutcome::Rejected { .. } => None,
        })
    }

    fn kept(&self) -> impl Iterator<Item = &AddressResult> {
        self.done.iter().filter(|done| done.address.len() <= MAX_KEPT_ADDRESS_BYTES)
    }

    /// The outcome of each address, without duplicates. Empty unless the send has several addresses, or had several
    /// before a retry.
    pub(crate) fn addresses(&self) -> Vec<&AddressResult> {
        let several = self.job.key.channel.has_many_addresses()
            && (self.job.devices != Devices::All || self.job.address.contains(' '));
        let mut done: Vec<&AddressResult> = self.kept().filter(|_| several).collect();
        done.sort_by(|one, other| one.address.cmp(&other.address));
        done.dedup_by(|one, other| one.address == other.address);
        done
    }

    /// The addresses that are left, if some are finished and the send may continue. `None` if no address is left: then
    /// it is unknown which to try again, and the stored address stays.
    pub(crate) fn remaining_addresses(&self) -> Option<String> {
        if !self.job.key.channel.has_many_addresses() || self.done.is_empty() || self.state.is_sent() {
            return None;
        }
        let is_done = |address: &&str| self.done.iter().any(|done| done.address == *address);
        let left: Vec<&str> = self.job.addresses().filter(|address| !is_done(address)).collect();
        Some(left.join(" ")).filter(|left| !left.is_empty())
    }

    /// The hash of a shared address to which the event was certainly not sent. After a crash it may have been sent, so
    /// no other send repeats it.
    pub(crate) fn released_address(&self) -> Option<String> {
        let certain = self.state.code().is_some_and(|code| code != CRASHED);
        (certain && self.job.key.channel.facts().once_per_address).then(|| address_hash(&self.job.address))
    }

    /// The dead letter of a failed send. Best-effort channels have none.
    pub(crate) fn dead_letter(&self) -> Option<DeadLetter> {
        let code = self.state.code().filter(|_| self.job.key.channel.is_retried())?;
        Some(DeadLetter {
            stage: "send",
            event_id: Some(self.job.event_id.to_string()),
            recipient: Some(self.job.user.clone()),
            channel: Some(self.job.key.channel),
            provider: Some(self.provider.clone()),
            reason: code.to_owned(),
            error: self.last_error().unwrap_or_default(),
            message: None,
        })
    }
}

/// The outcome of an address as stored in `send_address`: outcome, provider's id and error.
pub(crate) fn address_outcome(done: &AddressResult) -> (&'static str, Option<&str>, Option<&str>) {
    match &done.end {
        AddressOutcome::Sent { external_id } => ("SENT", external_id.as_deref(), None),
        AddressOutcome::Rejected { error } => ("REJECTED", None, Some(error)),
        AddressOutcome::Dead { reason } => ("DEAD", None, Some(reason)),
    }
}

/// The hash of an address. An address may be a secret, and its hash is enough to compare it.
pub(crate) fn address_hash(address: &str) -> String {
    hex(&Sha256::digest(address.as_bytes()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capture {
    /// The message is written to `captured_message` in the same transaction, with its HTML.
    Keep {
        html: Option<Arc<str>>,
    },
    None,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Sends whose claim had been taken over. Nothing was written for them.
    pub lost: Vec<SendKey>,
}

/// A provider's report about a message after accepting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The provider's id of the message.
    pub external_id: String,
    /// The provider's status, such as `delivered`.
    pub receipt: String,
    /// The first words of receipts that this one must not replace, because they come after it. Callbacks can overtake
    /// each other.
    pub later_receipts: Vec<&'static str>,
}

/// A claim whose lease has expired, with its sends that are still `SENDING`.
#[derive(Debug)]
pub struct ExpiredClaim {
    pub claim: ClaimId,
    pub jobs: Vec<SendJob>,
}

/// A failure that is not retried automatically.
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

impl DeadLetter {
    /// The dead letter of an event.
    pub(crate) fn of_event(event_id: &str, failure: &Failure) -> Self {
        DeadLetter {
            stage: "fan_out",
            event_id: Some(event_id.to_owned()),
            reason: failure.code.to_owned(),
            error: failure.to_string(),
            ..DeadLetter::default()
        }
    }

    /// The dead letter of a row that can't be sent, for example because its template fails.
    pub(crate) fn of_failed_row(row: &OutboxRow) -> Self {
        DeadLetter {
            stage: "fan_out",
            event_id: Some(row.event_id.to_string()),
            recipient: Some(row.recipient.clone()),
            channel: Some(row.key.channel),
            reason: row.failure.as_ref().map(|failure| failure.code.to_owned()).unwrap_or_default(),
            error: row.failure.as_ref().map(ToString::to_string).unwrap_or_default(),
            ..DeadLetter::default()
        }
    }

    /// The dead letter of a row that the broker refused too often.
    pub(crate) fn of_refused_row(
        event_id: String,
        recipient: UserRef,
        channel: Channel,
        error: String,
    ) -> Self {
        DeadLetter {
            stage: "publish",
            event_id: Some(event_id),
            recipient: Some(recipient),
            channel: Some(channel),
            reason: "REFUSED".to_owned(),
            error,
            ..DeadLetter::default()
        }
    }
}

/// A message that was forged, can't be read, or was refused repeatedly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedMessage {
    /// `None` if the message has no readable key.
    pub key: Option<SendKey>,
    pub failure: Failure,
    pub message: Option<String>,
}

impl FailedMessage {
    /// The dead letter of the message. `row` is the event and recipient of its outbox row, if there is one.
    pub(crate) fn dead_letter(&self, row: Option<(String, UserRef)>) -> DeadLetter {
        let (event_id, recipient) = row.unzip();
        DeadLetter {
            stage: "receive",
            event_id,
            recipient,
            channel: self.key.map(|key| key.channel),
            provider: None,
            reason: self.failure.code.to_owned(),
            error: self.failure.to_string(),
            message: self.message.clone(),
        }
    }
}

#[async_trait]
pub trait SendStore {
    /// Writes notifications and sends for these rows. Rows that were received before are skipped.
    /// [`ReceivedKey::birth`] decides the initial status of each send.
    async fn receive(
        &self,
        keys: Vec<ReceivedKey>,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Received, StoreError>;

    /// Claims due sends of a channel, by lane, then by due time.
    async fn claim_due(
        &self,
        channel: Channel,
        limit: usize,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Vec<SendJob>, StoreError>;

    /// Writes a batch of outcomes in one transaction. Each outcome is fenced by its claim. The claims in `finished`
    /// have no unsettled sends left. `instance` is stored as the writer.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        finished: Vec<ClaimId>,
        instance: InstanceId,
    ) -> Result<Settled, StoreError>;

    /// Claims the job's address for its event. Only one send holds the address, even if it asks repeatedly, for as long
    /// as its own claim holds. A send that fails releases the address, unless the message may have been sent.
    async fn claim_address(&self, job: &SendJob) -> Result<AddressClaim, StoreError>;

    /// Whether the job may have been sent under its current claim. This is so if it held its address.
    async fn may_have_sent(&self, job: &SendJob) -> Result<bool, StoreError>;

    /// Stores a provider's receipt if it can belong to the send's message and no later receipt is stored. Returns
    /// whether it was stored. The send's status stays.
    async fn record_receipt(&self, key: SendKey, receipt: Receipt) -> Result<bool, StoreError>;

    /// Renews claims from now on. Returns the claims that had not expired and are renewed.
    async fn renew_claims(&self, claims: Vec<ClaimId>, lease: Duration) -> Result<Vec<ClaimId>, StoreError>;

    /// Claims whose lease has expired. They are not changed, because settling their jobs takes them over.
    async fn expired_claims(&self, limit: usize) -> Result<Vec<ExpiredClaim>, StoreError>;

    /// Writes a dead letter for each message that can't be received. The message's outbox row becomes `FAILED`, so that
    /// it is not published again.
    async fn fail_messages(&self, failed: Vec<FailedMessage>) -> Result<(), StoreError>;

    /// When the next send of the channel is due. `None` if no send waits.
    async fn next_due(&self, channel: Channel) -> Result<Option<Timestamp>, StoreError>;
}
