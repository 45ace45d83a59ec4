//! Values that several sections have: durations, secrets, choices of a few words, counts.

use std::fmt;
use std::time::Duration;

use anyhow::bail;
use campanile_domain::time::parse_duration;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Reads one of a few words. It is read as text first, so that an error lists the words; `config` alone would name the
/// Rust type.
pub fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// One of a few words, if any is given.
pub fn maybe_word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| T::deserialize(text.into_deserializer())).transpose()
}

/// A duration as people write it, such as `10s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    /// Checks it as the deadline of a provider.
    pub fn of_an_attempt(self, section: &str) -> anyhow::Result<Duration> {
        self.up_to(10, &format!("{section}.deadline"))
    }

    pub fn up_to(self, minutes: u64, key: &str) -> anyhow::Result<Duration> {
        if self.0 < Duration::from_millis(100) || self.0 > Duration::from_mins(minutes) {
            bail!("{key}: must lie between 100ms and {minutes}m");
        }
        Ok(self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Span).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = self.0.as_millis();
        match (millis % 60_000, millis % 1_000) {
            (0, _) if millis > 0 => serializer.collect_str(&format_args!("{}m", millis / 60_000)),
            (_, 0) => serializer.collect_str(&format_args!("{}s", millis / 1_000)),
            _ => serializer.collect_str(&format_args!("{millis}ms")),
        }
    }
}

/// Shows that there is a secret, and not which.
pub fn redacted<S: Serializer>(secret: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if secret.is_empty() { "" } else { "(redacted)" })
}

/// A text that is never shown.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        redacted(&self.0, serializer)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// Refuses a count of zero, which would stop a stage, and one that can only be a mistake.
pub fn check_count(key: &str, value: usize) -> anyhow::Result<()> {
    if value == 0 || value > 100_000 {
        bail!("{key}: must lie between 1 and 100000, is {value}");
    }
    Ok(())
}
