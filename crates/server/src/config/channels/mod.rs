//! Which providers send over which channel: one URL each, with credentials and limits. Several are asked in their
//! order. A channel without a provider is captured.

mod email;
mod push;
mod slack;
mod sms;

use anyhow::{anyhow, bail};
use campanile_channels::{Chain, Providers, RateLimit};
use campanile_domain::channel::Channel;
use campanile_domain::people::address::is_this_machine;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use email::Email;
use push::Push;
use slack::Slack;
use sms::Sms;

pub use sms::callback as twilio_callback;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    pub email: Email,
    pub push: Push,
    pub sms: Sms,
    pub slack: Slack,
}

impl Channels {
    /// The providers of each channel; none connects yet. Some use the public URL for callbacks.
    pub fn providers(&self, public_url: Option<&Url>) -> anyhow::Result<Providers> {
        let mut providers = Providers::capture();
        let all = [
            (Channel::Email, self.email.links()?),
            (Channel::Push, self.push.links()?),
            (Channel::Sms, self.sms.links(public_url)?),
            (Channel::Slack, self.slack.links()?),
        ];
        for (channel, links) in all {
            if !links.is_empty() {
                providers = providers.with_chain(channel, Chain::new(links));
            }
        }
        Ok(providers)
    }
}

/// A provider's URL while it is parsed. Errors show only the names of options, because a secret may stand anywhere in a
/// wrong URL.
struct Address {
    key: &'static str,
    url: Url,
    options: Vec<(String, String)>,
    remedy: &'static str,
}

impl Address {
    fn parse(key: &'static str, text: &str, remedy: &'static str) -> anyhow::Result<Self> {
        let url = Url::parse(text).map_err(|error| anyhow!("{key}: not a valid URL ({error}); {remedy}"))?;
        if url.fragment().is_some() {
            bail!("{key}: contains #; encode a # in the password as %23; {remedy}");
        }
        let options =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        Ok(Address { key, url, options, remedy })
    }

    /// Takes an option, which may be given at most once.
    fn option(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        let Address { key, remedy, .. } = self;
        let mut given = self.options.extract_if(.., |(option, _)| option == name).map(|(_, value)| value);
        let value = given.next();
        if given.next().is_some() {
            bail!("{key}: `{name}` is given twice; {remedy}");
        }
        Ok(value)
    }

    fn number(&mut self, name: &str, min: usize, max: usize) -> anyhow::Result<Option<usize>> {
        let Some(text) = self.option(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| anyhow!("{}: `{name}` is a number from {min} to {max}", self.key))
    }

    fn per_second(&mut self, name: &str) -> anyhow::Result<Option<f64>> {
        let Some(text) = self.option(name)? else { return Ok(None) };
        let rate = text.parse().ok().filter(|rate| (0.001..=1_000_000.0).contains(rate));
        rate.map(Some)
            .ok_or_else(|| anyhow!("{}: `{name}` is a number of messages a second, such as 20", self.key))
    }

    /// The rate limit in messages a second.
    fn rate(&mut self) -> anyhow::Result<Option<RateLimit>> {
        Ok(self.per_second("rate")?.map(RateLimit::new))
    }

    /// The URL without credentials and options; all options must have been taken.
    fn base(mut self) -> anyhow::Result<Url> {
        self.nothing_else()?;
        self.url.set_query(None);
        self.url.set_fragment(None);
        // Cannot fail for a URL with a host.
        let _ = (self.url.set_username(""), self.url.set_password(None));
        Ok(self.url)
    }

    fn nothing_else(&self) -> anyhow::Result<()> {
        let Some((name, _)) = self.options.first() else { return Ok(()) };
        let Address { key, remedy, .. } = self;
        // `smtp://user:12?34@host` has no option: the question mark belongs to the password.
        if self.url.query().is_some_and(|options| options.contains('@')) {
            bail!("{key}: contains @ after ?; encode a ? in the password as %3F; {remedy}");
        }
        bail!("{key}: unknown option `{name}`; {remedy}")
    }
}
