//! The channels, and a map with one value per channel. What differs between them is in `facts`.

mod facts;

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::schema::{self, schema};
use facts::FACTS;

pub use facts::{
    AddressCount, AddressSource, Channel, ChannelFacts, Delivery, Postponement, RecipientColumn,
};

const COUNT: usize = FACTS.len();

impl Channel {
    pub const ALL: [Channel; COUNT] = {
        let mut all = [FACTS[0].channel; COUNT];
        let mut row = 0;
        while row < COUNT {
            all[row] = FACTS[row].channel;
            row += 1;
        }
        all
    };

    pub fn facts(self) -> &'static ChannelFacts {
        &FACTS[self as usize]
    }

    pub fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// The name as a key of the configuration.
    pub fn key(self) -> String {
        self.as_str().to_ascii_lowercase()
    }

    /// Whether failed attempts are repeated. Other channels never make dead letters.
    pub fn is_retried(self) -> bool {
        self.facts().delivery == Delivery::Retried
    }

    /// Whether a send is sent by being received. Other channels have a provider.
    pub fn is_sent_on_receipt(self) -> bool {
        self.facts().delivery == Delivery::OnReceipt
    }

    /// Whether a send may have several addresses.
    pub fn has_many_addresses(self) -> bool {
        self.facts().addresses == AddressCount::Many
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown channel `{0}`: expected {names}", names = one_of(&Channel::ALL.map(Channel::as_str)))]
pub struct UnknownChannel(String);

/// `A, B or C`.
fn one_of(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

impl FromStr for Channel {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, UnknownChannel> {
        Channel::ALL.into_iter().find(|c| c.as_str() == text).ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}

schema!(Channel, schema::word("", &Channel::ALL.map(Channel::as_str)));

impl Serialize for Channel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Channel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Channel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a channel")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Channel, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// One value for each channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerChannel<T>([T; COUNT]);

impl<T> PerChannel<T> {
    pub fn from_fn(mut value: impl FnMut(Channel) -> T) -> Self {
        PerChannel(Channel::ALL.map(&mut value))
    }

    pub fn get(&self, channel: Channel) -> &T {
        &self.0[channel as usize]
    }

    pub fn get_mut(&mut self, channel: Channel) -> &mut T {
        &mut self.0[channel as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (Channel, &T)> {
        Channel::ALL.into_iter().zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_channel_is_read_by_its_name() {
        for channel in Channel::ALL {
            assert_eq!(channel.as_str().parse::<Channel>().ok(), Some(channel));
            assert_eq!(serde_json::to_value(channel).unwrap(), channel.as_str());
            assert_eq!(serde_json::from_value::<Channel>(channel.as_str().into()).unwrap(), channel);
        }
    }

    #[test]
    fn unknown_channel_is_refused_with_the_names_of_the_table() {
        let refused = "FAX".parse::<Channel>().unwrap_err().to_string();
        assert!(refused.starts_with("unknown channel `FAX`: expected EMAIL, PUSH, "), "{refused}");
        assert!(refused.contains(" or "), "{refused}");
        let refused = serde_json::from_str::<Channel>("\"FAX\"").unwrap_err().to_string();
        assert!(refused.contains("unknown channel `FAX`"), "{refused}");
    }
}
