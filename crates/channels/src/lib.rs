//! The only crate that knows providers. A provider sends one message over one channel and says what came of it; adding one
//! touches its own file and one line of the registry.

mod capture;
mod twilio;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::channel::{Channel, PerChannel};
use campanile_domain::finding::Finding;
use campanile_domain::id::SendKey;
use campanile_domain::send::Outcome;

pub use capture::Capture;
pub use twilio::{Sender, Twilio, TwilioConfig, is_account_sid};

/// What is to be sent. The key is stable over all attempts: providers that know idempotency are given it.
#[derive(Debug)]
pub struct Message<'a> {
    pub key: SendKey,
    pub address: &'a str,
    pub title: &'a str,
    pub body: &'a str,
}

#[async_trait]
pub trait Provider: Debug + Send + Sync {
    /// As it stands in `notification_channel_send.provider`.
    fn name(&self) -> &'static str;

    /// No attempt takes longer. A worker whose lease ends sooner does not begin one.
    fn deadline(&self) -> Duration;

    /// Whether messages are kept here and leave the house to nobody.
    fn captures(&self) -> bool {
        false
    }

    async fn send(&self, message: Message<'_>) -> Outcome;

    /// Looks whether it could send, and sends nothing.
    async fn examine(&self, channel: Channel) -> Finding {
        Finding::ok("channels", format!("{channel} is sent by {}", self.name()))
    }
}

/// The provider of each channel. A web socket has none: it is served by the receiving instance.
#[derive(Debug, Clone)]
pub struct Providers(PerChannel<Option<Arc<dyn Provider>>>);

impl Providers {
    /// Nothing is configured: every message is captured.
    pub fn capture() -> Self {
        let capture: Arc<dyn Provider> = Arc::new(Capture);
        Providers(PerChannel::from_fn(|channel| match channel {
            Channel::Email | Channel::Push | Channel::Sms | Channel::Slack => Some(Arc::clone(&capture)),
            Channel::Websocket => None,
        }))
    }

    /// Replaces the provider of a channel.
    #[must_use]
    pub fn with(mut self, channel: Channel, provider: Arc<dyn Provider>) -> Self {
        *self.0.get_mut(channel) = Some(provider);
        self
    }

    pub fn get(&self, channel: Channel) -> Option<&Arc<dyn Provider>> {
        self.0.get(channel).as_ref()
    }

    /// Each channel that is sent by a provider.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, &Arc<dyn Provider>)> {
        self.0.iter().filter_map(|(channel, provider)| Some((channel, provider.as_ref()?)))
    }
}
