//! The life of a send, from the received message to the settled send: its claims, leases and fencing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::Channel;
use campanile_domain::event::Failure;
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::id::{EventId, EventType, SendKey, UserRef};
use campanile_domain::priority::Priority;
use campanile_domain::send::{
    AddressClaim, AddressOutcome, AddressResult, CRASHED, History, OutcomeKind, SendState, birth,
};
use campanile_domain::status::SendStatus;
use campanile_domain::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::{Instance, InstanceId, StoreError};

/// The fencing token of a claim; it rises with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedKey {
    pub key: SendKey,
    /// Claim the send for an attempt at once; otherwise it is due and waits.
    pub claim: bool,
    /// As its message says; absent where it does not.
    pub published: Option<PublishStamp>,
}

impl ReceivedKey {
    pub fn birth(&self) -> SendStatus {
        birth(self.key.channel.facts().delivery, self.claim)
    }
}

/// Who published a message, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishStamp {
    pub at: Timestamp,
    pub by: InstanceId,
}

/// A send that was not there before.
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
    /// Keys that no outbox row has: forged, or older than what is kept.
    pub unknown: Vec<SendKey>,
    /// Each row that was not there before.
    pub new: Vec<NewSend>,
    /// The events of the others; they may be complete, too.
    pub redelivered_events: Vec<EventId>,
    /// Rows that were there already: a redelivery.
    pub redelivered: u64,
}

/// All that an attempt needs.
#[derive(Debug, Clone, PartialEq)]
pub struct SendJob {
    pub key: SendKey,
    pub claim: ClaimId,
    /// The how-manieth attempt this is, from 1.
    pub attempt: u32,
    /// What the attempts before it left.
    pub history: History,
    pub event_id: EventId,
    pub event_type: EventType,
    pub user: UserRef,
    /// Where there are several, those that are not done with, separated by spaces. Empty where all that is left was
    /// declared dead while it waited.
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
    /// Others are done with by earlier attempts; whether one of them was told.
    Remaining { any_sent: bool },
}

impl SendJob {
    /// Its addresses. Only some channels have several.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        let several = self.key.channel.has_many_addresses();
        self.address.split(move |c| several && c == ' ').filter(|address| !address.is_empty())
    }

    /// Leaves out what was declared dead since it was decided.
    pub(crate) fn remove_addresses(&mut self, is_dead: impl Fn(&str) -> bool) {
        if self.addresses().any(&is_dead) {
            self.address = self.addresses().filter(|address| !is_dead(address)).collect::<Vec<_>>().join(" ");
        }
    }
}

/// Longer ones are no addresses of any provider, and no index of PostgreSQL takes them.
const MAX_KEPT_ADDRESS_BYTES: usize = 2_000;

/// What an attempt came to, to be written where its claim still holds.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub job: SendJob,
    pub state: SendState,
    /// Addresses that get no further attempt, whatever becomes of the others.
    pub done: Vec<AddressResult>,
    pub provider: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// What the provider made of it. One that was not asked does not count as an attempt.
    pub outcome: OutcomeKind,
    /// The send's history with this outcome in it.
    pub history: History,
    pub duration: Duration,
    /// When the attempt began; absent where there was none, or nobody knows.
    pub attempted_at: Option<Timestamp>,
    pub capture: Capture,
}

impl Settlement {
    /// Attempts so far.
    pub(crate) fn attempts(&self) -> u32 {
        self.outcome.attempts_after(self.job.attempt)
    }

    /// What is to be written of the history: nothing where nothing is new, as of nearly all sends.
    pub(crate) fn new_history(&self) -> Option<History> {
        (self.history != self.job.history).then_some(self.history)
    }

    /// What went wrong, with its code in front where that is final.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.error.as_ref().map(|error| match self.state.code() {
            Some(code) => format!("{code}: {error}"),
            None => error.clone(),
        })
    }

    /// Whether the attempt is kept: every one that was not a first success.
    pub(crate) fn keeps_attempt(&self) -> bool {
        let is_first = self.job.attempt == 1 && self.job.history == History::default();
        self.outcome.is_attempt() && !(is_first && self.state.is_sent())
    }

    /// Addresses that nobody is at any more, and why.
    pub(crate) fn dead(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kept().filter_map(|done| match &done.end {
            AddressOutcome::Dead { reason } => Some((done.address.as_str(), reason.as_str())),
            AddressOutcome::Sent { .. } | AddressOutcome::Rejected { .. } => None,
        })
    }

    fn kept(&self) -> impl Iterator<Item = &AddressResult> {
        self.done.iter().filter(|done| done.address.len() <= MAX_KEPT_ADDRESS_BYTES)
    }

    /// What became of each address, where there are or were several: one that is left of them by a retry counts, too.
    /// Each is here once.
    pub(crate) fn addresses(&self) -> Vec<&AddressResult> {
        let several = self.job.key.channel.has_many_addresses()
            && (self.job.devices != Devices::All || self.job.address.contains(' '));
        let mut done: Vec<&AddressResult> = self.kept().filter(|_| several).collect();
        done.sort_by(|one, other| one.address.cmp(&other.address));
        done.dedup_by(|one, other| one.address == other.address);
        done
    }

    /// The addresses that are left, where some are done with and the send may go on. Where none is left nobody knows
    /// which to try again, and the address stays.
    pub(crate) fn remaining_addresses(&self) -> Option<String> {
        if !self.job.key.channel.has_many_addresses() || self.done.is_empty() || self.state.is_sent() {
            return None;
        }
        let is_done = |address: &&str| self.done.iter().any(|done| done.address == *address);
        let left: Vec<&str> = self.job.addresses().filter(|address| !is_done(address)).collect();
        Some(left.join(" ")).filter(|left| !left.is_empty())
    }

    /// The hash of the shared address that the event was certainly not sent to. After a crash it may have been, and no
    /// other send repeats it.
    pub(crate) fn released_address(&self) -> Option<String> {
        let certain = self.state.code().is_some_and(|code| code != CRASHED);
        (certain && self.job.key.channel.facts().once_per_address).then(|| address_hash(&self.job.address))
    }

    /// Best-effort channels make no dead letters.
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

/// What became of an address, as `send_address` has it: its outcome, the provider's id, and what went wrong.
pub(crate) fn address_outcome(done: &AddressResult) -> (&'static str, Option<&str>, Option<&str>) {
    match &done.end {
        AddressOutcome::Sent { external_id } => ("SENT", external_id.as_deref(), None),
        AddressOutcome::Rejected { error } => ("REJECTED", None, Some(error)),
        AddressOutcome::Dead { reason } => ("DEAD", None, Some(reason)),
    }
}

/// An address may be a secret; to tell one from another its hash is enough.
pub(crate) fn address_hash(address: &str) -> String {
    Sha256::digest(address.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        use std::fmt::Write;
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capture {
    /// The message is written to `captured_message` in the same transaction, with the HTML that it had.
    Keep {
        html: Option<Arc<str>>,
    },
    None,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Sends whose claim had been taken over: nothing was written for them.
    pub lost: Vec<SendKey>,
}

/// What a provider says of a message after it has taken it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The provider's id of the message.
    pub external_id: String,
    /// In the provider's words, such as `delivered`.
    pub receipt: String,
    /// First words of receipts that this one does not replace: they come behind it. Callbacks overtake each other, and
    /// what was known is not unlearnt by a late one.
    pub later_receipts: Vec<&'static str>,
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

impl DeadLetter {
    /// An event that nobody will try again by itself.
    pub(crate) fn of_event(event_id: &str, failure: &Failure) -> Self {
        DeadLetter {
            stage: "fan_out",
            event_id: Some(event_id.to_owned()),
            reason: failure.code.to_owned(),
            error: failure.to_string(),
            ..DeadLetter::default()
        }
    }

    /// A row that can't be sent, for example because its template fails.
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

    /// A row that the broker refused too often.
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

/// A message that was forged, can't be read, or was refused again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedMessage {
    /// Absent when the message has no readable key.
    pub key: Option<SendKey>,
    pub failure: Failure,
    pub message: Option<String>,
}

impl FailedMessage {
    /// With the event and recipient of the row that it spoke of, if it spoke of one.
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
    /// Writes notifications and sends for these rows; a row that is there already is skipped. Each send is born with
    /// the status of [`ReceivedKey::birth`].
    async fn receive(
        &self,
        keys: Vec<ReceivedKey>,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Received, StoreError>;

    /// Claims sends of a channel that are due; by lane, then by due time.
    async fn claim_due(
        &self,
        channel: Channel,
        limit: usize,
        instance: &Instance,
        lease: Duration,
    ) -> Result<Vec<SendJob>, StoreError>;

    /// One transaction for a batch of outcomes; each is fenced by its claim. `finished` claims hold nothing any more.
    /// Written by `instance`.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        finished: Vec<ClaimId>,
        instance: InstanceId,
    ) -> Result<Settled, StoreError>;

    /// Claims the job's address for its event. Of all sends that ask, one holds the address, however often it asks, for
    /// as long as its own claim holds. A send that fails gives it up again, unless it may have been sent.
    async fn claim_address(&self, job: &SendJob) -> Result<AddressClaim, StoreError>;

    /// Whether the job may have been sent under the claim that it holds: it held its address.
    async fn may_have_sent(&self, job: &SendJob) -> Result<bool, StoreError>;

    /// Keeps what a provider says of a message, where it is the one that we know of and nothing later is known; answers
    /// whether. The send's status stays.
    async fn record_receipt(&self, key: SendKey, receipt: Receipt) -> Result<bool, StoreError>;

    /// Renews claims from now on; answers those that had not expired and are renewed.
    async fn renew_claims(&self, claims: Vec<ClaimId>, lease: Duration) -> Result<Vec<ClaimId>, StoreError>;

    /// Claims whose lease has passed. They are not changed: settling their jobs is what takes them over.
    async fn expired_claims(&self, limit: usize) -> Result<Vec<ExpiredClaim>, StoreError>;

    /// Messages that can't be received: a dead letter for each, and the row that it spoke of is `FAILED`, so that
    /// nobody publishes it again.
    async fn fail_messages(&self, failed: Vec<FailedMessage>) -> Result<(), StoreError>;

    /// When the next send of the channel is due, if any waits.
    async fn next_due(&self, channel: Channel) -> Result<Option<Timestamp>, StoreError>;
}
