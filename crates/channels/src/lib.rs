//! The only crate that knows providers. A provider sends one message over one channel and reports the outcome. A
//! [`Chain`] decides which of a channel's providers is asked, and how fast.

// The registry: one folder per channel.
pub mod email;
pub mod push;
pub mod slack;
pub mod sms;

mod capture;
mod delivery;
mod dns;
mod http;
mod text;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::finding::Finding;
use campanile_domain::id::SendKey;
use campanile_domain::priority::Priority;
use campanile_domain::send::{AddressResult, Outcome};
use campanile_domain::time::Timestamp;

pub use capture::Capture;
pub use delivery::chain::{Availability, Chain, Link, ProviderAnswer};
pub use delivery::failure_log::Cause;
pub use delivery::rate_limit::RateLimit;

/// A message to send. The key is the same in all attempts; providers with idempotency keys get it.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub key: SendKey,
    pub event_id: &'a str,
    pub event_type: &'a str,
    /// For a push: the tokens without a final result, separated by spaces.
    pub address: &'a str,
    /// The recipient's name, if known.
    pub name: Option<&'a str>,
    pub title: &'a str,
    pub body: &'a str,
    /// The HTML of an e-mail, if its template has any.
    pub html: Option<&'a str>,
    /// The link of a push, if its template has one.
    pub url: Option<&'a str>,
    pub priority: Priority,
    /// When the event was accepted. A time to live starts here and covers all attempts.
    pub created_at: Timestamp,
}

/// The provider's answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    pub done: Vec<AddressResult>,
    pub health: Health,
    /// Why the provider failed, if it did.
    pub cause: Option<Cause>,
}

impl Answer {
    /// Adds a cause, if the answer is a failure of the provider.
    #[must_use]
    pub fn with_cause(self, cause: Cause) -> Self {
        let cause = self.is_failure().then_some(cause);
        Answer { cause, ..self }
    }

    /// Whether the provider accepted nothing, or this is unknown. A refusal of the message itself is no failure.
    fn is_failure(&self) -> bool {
        match self.outcome {
            Outcome::Down { .. }
            | Outcome::Unknown { .. }
            | Outcome::Unanswered { .. }
            | Outcome::Unclear { .. } => true,
            Outcome::Sent { .. }
            | Outcome::Retry { .. }
            | Outcome::Deferred { .. }
            | Outcome::RateLimited { .. }
            | Outcome::Rejected { .. }
            | Outcome::TemplateFailed { .. }
            | Outcome::Expired { .. }
            | Outcome::NotAttempted { .. } => false,
        }
    }
}

/// What an answer says about the provider's health, for the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// The outcome decides.
    #[default]
    ByOutcome,
    /// Nothing: it refuses this recipient and may accept others.
    Unknown,
    /// It refuses every message: the breaker opens at once.
    RefusesAll,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Answer { outcome, done: Vec::new(), health: Health::default(), cause: None }
    }
}

/// The lease under which an attempt is made.
#[async_trait]
pub trait SendLease: Send + Sync {
    /// The remaining time of the lease.
    fn remaining(&self) -> Duration;

    /// Called when the whole message is out. The lease is renewed while this is polled. It returns when answers are no
    /// longer awaited.
    async fn await_answer(&self) {
        std::future::pending::<()>().await;
    }
}

impl<F: Fn() -> Duration + Send + Sync> SendLease for F {
    fn remaining(&self) -> Duration {
        self()
    }
}

#[async_trait]
pub trait Provider: Debug + Send + Sync {
    /// The name in `notification_channel_send.provider`.
    fn name(&self) -> &'static str;

    /// The longest time of an attempt until the whole message is out. No attempt begins under a shorter lease.
    fn deadline(&self) -> Duration;

    /// How long the answer is awaited after that, while the lease is renewed.
    fn answer_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether messages are only stored and never sent.
    fn captures(&self) -> bool {
        false
    }

    /// The message's host, if it depends on the message. A host that is down does not stop others.
    fn host(&self, _: &Message<'_>) -> Option<String> {
        None
    }

    /// The id that the recipient sees, if we choose it: `Message-ID` of an e-mail.
    fn message_id(&self, _: SendKey) -> Option<String> {
        None
    }

    async fn send(&self, message: &Message<'_>) -> Answer;

    /// Sends a message under a lease, for providers with an answer timeout.
    async fn send_with_lease(&self, message: &Message<'_>, _: &dyn SendLease) -> Answer {
        self.send(message).await
    }

    /// Checks whether it could send, without sending.
    async fn examine(&self, channel: Channel) -> Finding {
        Finding::ok("channels", format!("{channel} is sent by {}", self.name()))
    }
}

/// The providers of each channel. A channel whose sends are sent by being received has none.
#[derive(Debug, Clone)]
pub struct Providers(PerChannel<Option<Arc<Chain>>>);

impl Providers {
    /// Without configuration every message is captured.
    pub fn capture() -> Self {
        Providers(PerChannel::from_fn(|channel| {
            (!channel.is_sent_on_receipt()).then(|| Arc::new(Chain::of(Arc::new(Capture))))
        }))
    }

    /// Replaces the providers of a channel by one.
    #[must_use]
    pub fn with(self, channel: Channel, provider: Arc<dyn Provider>) -> Self {
        self.with_chain(channel, Chain::of(provider))
    }

    /// Replaces the providers of a channel.
    #[must_use]
    pub fn with_chain(mut self, channel: Channel, chain: Chain) -> Self {
        *self.0.get_mut(channel) = Some(Arc::new(chain));
        self
    }

    pub fn get(&self, channel: Channel) -> Option<&Arc<Chain>> {
        self.0.get(channel).as_ref()
    }

    /// The channels with providers.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, &Arc<Chain>)> {
        self.0.iter().filter_map(|(channel, chain)| Some((channel, chain.as_ref()?)))
    }
}
