//! How often and how fast sends are tried: defaults for all channels, and for each channel what differs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::bail;
use campanile_domain::channel::{Channel, PerChannel, Postponement};
use campanile_domain::send::{OnDoubt, SendPolicy};
use campanile_engine::config::SendConfig;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{Span, maybe_word, word};

/// `[send.default]`, and a section for some of the channels.
#[derive(Debug, Clone)]
pub struct Sends {
    default: Send,
    channels: BTreeMap<Channel, ChannelSend>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    poll_interval: Span,
    max_attempts: u32,
    backoff_base: Span,
    backoff_cap: Span,
    #[serde(deserialize_with = "word")]
    on_doubt: OnDoubt,
    defer_for: Span,
    wait_for: Span,
    concurrency: usize,
}

/// What differs for a channel.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ChannelSend {
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval: Option<Span>,
    /// Only for channels that are retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_base: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_cap: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "maybe_word")]
    on_doubt: Option<OnDoubt>,
    /// Only where the recipient's server may defer a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_for: Option<Span>,
    /// Only where an address may be busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_for: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<usize>,
}

impl Sends {
    pub fn check(&self) -> anyhow::Result<()> {
        self.channels.iter().try_for_each(|(&channel, send)| send.check(channel))
    }

    pub fn engine(&self) -> PerChannel<SendConfig> {
        let none = ChannelSend::default();
        PerChannel::from_fn(|channel| {
            self.default.engine(self.channels.get(&channel).unwrap_or(&none), channel)
        })
    }
}

impl ChannelSend {
    fn check(&self, channel: Channel) -> anyhow::Result<()> {
        let (facts, section) = (channel.facts(), format!("send.{}", channel.key()));
        for (key, given, by) in [
            ("defer_for", self.defer_for, Postponement::Deferred),
            ("wait_for", self.wait_for, Postponement::RateLimited),
        ] {
            if given.is_some() && facts.postponement != by {
                let valid = |other: &Channel| other.facts().postponement == by;
                let valid: Vec<String> = Channel::ALL.into_iter().filter(valid).map(Channel::key).collect();
                bail!("{section}.{key}: only valid for send.{}; remove it", valid.join(", send."));
            }
        }
        if self.max_attempts.is_some() && !channel.is_retried() {
            let instead = match facts.postponement {
                Postponement::RateLimited => {
                    format!(" ({section}.wait_for limits how long a message waits for a busy address)")
                }
                Postponement::Deferred | Postponement::Never => String::new(),
            };
            bail!("{section}.max_attempts: {channel} messages have one attempt; remove it{instead}");
        }
        Ok(())
    }
}

impl Send {
    fn engine(&self, own: &ChannelSend, channel: Channel) -> SendConfig {
        let postponed = match channel.facts().postponement {
            Postponement::Deferred => own.defer_for.unwrap_or(self.defer_for).0,
            Postponement::RateLimited => own.wait_for.unwrap_or(self.wait_for).0,
            Postponement::Never => Duration::ZERO,
        };
        SendConfig {
            poll_interval: own.poll_interval.unwrap_or(self.poll_interval).0,
            policy: SendPolicy {
                max_attempts: own.max_attempts.unwrap_or(self.max_attempts).max(1),
                backoff_base: own.backoff_base.unwrap_or(self.backoff_base).0,
                backoff_cap: own.backoff_cap.unwrap_or(self.backoff_cap).0,
                on_doubt: own.on_doubt.unwrap_or(self.on_doubt),
                defer_for: postponed,
            },
            concurrency: own.concurrency.unwrap_or(self.concurrency).clamp(1, 1_000),
        }
    }
}

const DEFAULT: &str = "default";

/// The sections: `default`, and every channel that has a provider.
fn section(name: &str) -> Result<Option<Channel>, String> {
    let channels = || Channel::ALL.into_iter().filter(|channel| !channel.is_sent_on_receipt());
    if name == DEFAULT {
        return Ok(None);
    }
    channels().find(|channel| channel.key() == name).map(Some).ok_or_else(|| {
        let known: Vec<String> = channels().map(Channel::key).collect();
        format!("unknown channel `{name}`; known are {DEFAULT}, {}", known.join(", "))
    })
}

impl<'de> Deserialize<'de> for Sends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sections;
        impl<'de> Visitor<'de> for Sections {
            type Value = Sends;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section per channel")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut sections: A) -> Result<Sends, A::Error> {
                let (mut default, mut channels) = (None, BTreeMap::new());
                while let Some(name) = sections.next_key::<String>()? {
                    match section(&name).map_err(A::Error::custom)? {
                        None => default = Some(sections.next_value()?),
                        Some(channel) => drop(channels.insert(channel, sections.next_value()?)),
                    }
                }
                let default = default.ok_or_else(|| A::Error::missing_field(DEFAULT))?;
                Ok(Sends { default, channels })
            }
        }
        deserializer.deserialize_map(Sections)
    }
}

impl Serialize for Sends {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sections = serializer.serialize_map(Some(1 + self.channels.len()))?;
        sections.serialize_entry(DEFAULT, &self.default)?;
        for (channel, send) in &self.channels {
            sections.serialize_entry(&channel.key(), send)?;
        }
        sections.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: &str = "[default]\npoll_interval = \"10s\"\nmax_attempts = 3\nbackoff_base = \"10s\"\n\
        backoff_cap = \"15m\"\non_doubt = \"resend\"\ndefer_for = \"24h\"\nwait_for = \"10m\"\nconcurrency = 20\n";

    fn sends(sections: &str) -> Result<Sends, String> {
        let sends: Sends =
            toml::from_str(&format!("{DEFAULTS}{sections}")).map_err(|error| error.to_string())?;
        sends.check().map_err(|error| error.to_string())?;
        Ok(sends)
    }

    #[test]
    fn a_channel_has_the_defaults_beside_its_own_values() {
        let config = sends("[push]\nmax_attempts = 5\non_doubt = \"hold\"\n").unwrap().engine();
        let push = config.get(Channel::Push);
        assert_eq!((push.policy.max_attempts, push.policy.on_doubt), (5, OnDoubt::Hold));
        assert_eq!((push.concurrency, push.policy.defer_for), (20, Duration::ZERO));
        let (email, slack) = (config.get(Channel::Email), config.get(Channel::Slack));
        assert_eq!(email.policy.max_attempts, 3);
        assert_eq!(email.policy.defer_for, Duration::from_hours(24));
        assert_eq!(slack.policy.defer_for, Duration::from_mins(10));
    }

    #[test]
    fn what_a_channel_does_not_have_is_refused_by_name() {
        for (sections, words) in [
            ("[fax]\n", vec!["unknown channel `fax`", "default, email, push, sms, slack"]),
            ("[websocket]\n", vec!["unknown channel `websocket`"]),
            ("[push]\ndefer_for = \"1h\"\n", vec!["send.push.defer_for", "only valid for send.email"]),
            ("[email]\nwait_for = \"1h\"\n", vec!["send.email.wait_for", "only valid for send.slack"]),
            ("[slack]\nmax_attempts = 3\n", vec!["send.slack.max_attempts", "send.slack.wait_for"]),
            ("[sms]\nretries = 3\n", vec!["retries", "max_attempts"]),
        ] {
            let refused = sends(sections).unwrap_err();
            assert!(words.iter().all(|word| refused.contains(word)), "{sections}: {refused}");
        }
    }
}
