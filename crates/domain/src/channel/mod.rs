//! The five channels and what differs between them, and a map with one value per channel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Channel {
    Email,
    Push,
    Sms,
    Websocket,
    Slack,
}

impl Channel {
    pub const ALL: [Channel; 5] =
        [Channel::Email, Channel::Push, Channel::Sms, Channel::Websocket, Channel::Slack];

    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Email => "EMAIL",
            Channel::Push => "PUSH",
            Channel::Sms => "SMS",
            Channel::Websocket => "WEBSOCKET",
            Channel::Slack => "SLACK",
        }
    }

    /// Whether quiet hours apply. They concern channels that ring or buzz; an open web page or a Slack channel wakes
    /// nobody.
    pub fn heeds_quiet_hours(self) -> bool {
        match self {
            Channel::Email | Channel::Push | Channel::Sms => true,
            Channel::Websocket | Channel::Slack => false,
        }
    }

    /// Whether failed attempts are repeated. Best-effort channels get one attempt and never make dead letters.
    pub fn is_retried(self) -> bool {
        match self {
            Channel::Email | Channel::Push | Channel::Sms => true,
            Channel::Websocket | Channel::Slack => false,
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown channel `{0}`: expected EMAIL, PUSH, SMS, WEBSOCKET or SLACK")]
pub struct UnknownChannel(String);

impl FromStr for Channel {
    type Err = UnknownChannel;

    fn from_str(text: &str) -> Result<Self, UnknownChannel> {
        Channel::ALL.into_iter().find(|c| c.as_str() == text).ok_or_else(|| UnknownChannel(text.to_owned()))
    }
}

/// One value for each channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerChannel<T>([T; 5]);

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
