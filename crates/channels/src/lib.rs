//! The only crate that knows providers. A provider sends one message over one channel and says what came of it; adding
//! one touches its own file and one line of the registry. Which of a channel's providers is asked, and how fast, is
//! decided by its [`Chain`].

mod capture;
mod delivery;
mod dns;
mod email;
mod http;
mod push;
mod slack;
pub mod sms;
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
pub use email::{
    Credentials, DomainLimits, ExtraHeader, InvalidHeader, NamedMailbox, Security, Smtp, SmtpConfig,
};
pub use push::{Alert, Fcm, FcmConfig, KeyFileError, ServiceAccount};
pub use slack::{AllowedHost, Slack, SlackConfig, check_webhook};
pub use sms::{Sender, Twilio, TwilioConfig, is_account_sid};

/// What is to be sent. The key is stable over all attempts: providers that know idempotency are given it.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub key: SendKey,
    pub event_id: &'a str,
    pub event_type: &'a str,
    /// Of a push, all tokens that are not done with yet, separated by spaces.
    pub address: &'a str,
    /// Who it is for, where that is known.
    pub name: Option<&'a str>,
    pub title: &'a str,
    pub body: &'a str,
    /// Of an e-mail, if its template has one.
    pub html: Option<&'a str>,
    /// Of a push, where a click on it leads, if its template says so.
    pub url: Option<&'a str>,
    pub priority: Priority,
    /// When its event was accepted. What has a time to live has it from then on, over all attempts.
    pub created_at: Timestamp,
}

/// What a provider made of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    pub done: Vec<AddressResult>,
    pub health: Health,
    /// Why the provider took nothing, where it fails.
    pub cause: Option<Cause>,
}

impl Answer {
    /// With its cause, if it is a failure of the provider.
    #[must_use]
    pub fn with_cause(self, cause: Cause) -> Self {
        let cause = self.is_failure().then_some(cause);
        Answer { cause, ..self }
    }

    /// Whether the provider took nothing, or nobody knows; a word about the message is none.
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

/// What an answer says of its provider, for the circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// As the outcome has it.
    #[default]
    ByOutcome,
    /// Nothing: it refuses this recipient, and may take others.
    Unknown,
    /// It refuses everybody: the breaker opens at once.
    RefusesAll,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Answer { outcome, done: Vec::new(), health: Health::default(), cause: None }
    }
}

/// What an attempt holds while it goes on.
#[async_trait]
pub trait SendLease: Send + Sync {
    /// How long the holder's lease still lasts.
    fn remaining(&self) -> Duration;

    /// The whole message is out, and the lease is renewed for as long as this is polled. Ends when nobody may wait any
    /// longer.
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
    /// As it stands in `notification_channel_send.provider`.
    fn name(&self) -> &'static str;

    /// No attempt takes longer until the whole message is out. A worker whose lease ends sooner does not begin one.
    fn deadline(&self) -> Duration;

    /// How long the answer is awaited beyond that, while the lease is renewed.
    fn answer_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether messages are kept here and leave the house to nobody.
    fn captures(&self) -> bool {
        false
    }

    /// The host that this message would go to, where that depends on the message: one that is down stops no other.
    fn host(&self, _: &Message<'_>) -> Option<String> {
        None
    }

    /// The id by which a message is known to whoever got it, where that is ours to give: `Message-ID` of an e-mail.
    fn message_id(&self, _: SendKey) -> Option<String> {
        None
    }

    async fn send(&self, message: &Message<'_>) -> Answer;

    /// The same, of a provider that has an answer timeout.
    async fn send_with_lease(&self, message: &Message<'_>, _: &dyn SendLease) -> Answer {
        self.send(message).await
    }

    /// Looks whether it could send, and sends nothing.
    async fn examine(&self, channel: Channel) -> Finding {
        Finding::ok("channels", format!("{channel} is sent by {}", self.name()))
    }
}

/// The providers of each channel. A web socket has none: it is served by the receiving instance.
#[derive(Debug, Clone)]
pub struct Providers(PerChannel<Option<Arc<Chain>>>);

impl Providers {
    /// Nothing is configured: every message is captured.
    pub fn capture() -> Self {
        Providers(PerChannel::from_fn(|channel| match channel {
            Channel::Email | Channel::Push | Channel::Sms | Channel::Slack => {
                Some(Arc::new(Chain::of(Arc::new(Capture))))
            }
            Channel::Websocket => None,
        }))
    }

    /// Replaces the providers of a channel by a single one.
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

    /// Each channel that is sent by providers.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, &Arc<Chain>)> {
        self.0.iter().filter_map(|(channel, chain)| Some((channel, chain.as_ref()?)))
    }
}
