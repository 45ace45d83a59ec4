//! Configuration: the shipped file with every default, then the operator's file, then variables, then flags. Reading it
//! makes types that can't be wrong; what is wrong is named with its key.

mod backend;
mod channels;
mod load;
mod send;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::data_folder::read_key;
use crate::http::TwilioCallbacks;
use anyhow::{Context, bail};
use campanile_channels::Providers;
use campanile_domain::people::user_type::{UserType, UserTypes};
use campanile_domain::time::parse_duration;
use campanile_engine::config::{FanOutConfig, PublishConfig, ReceiveConfig, RecoverConfig, RetainConfig};
use campanile_engine::{EngineConfig, Roles};
use reqwest::Url;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use backend::given;
pub use backend::{Broker, BrokerChoice, Database, DatabaseChoice, MAX_UNDELIVERED};
use channels::twilio_callback;

pub use channels::Channels;
pub use load::{Flags, variable_names};
pub use send::Sends;

/// The reference: every key, commented and with its default.
pub const REFERENCE: &str = include_str!("../../campanile.toml");

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub data_dir: PathBuf,
    pub server: Server,
    pub database: Database,
    pub broker: Broker,
    pub auth: Auth,
    pub log: Log,
    pub engine: EngineSection,
    pub fan_out: FanOut,
    pub publish: Publish,
    pub receive: Receive,
    pub send: Sends,
    pub channels: Channels,
    pub recover: Recover,
    pub retain: Retain,
    pub user_types: Vec<UserType>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub listen: SocketAddr,
    pub public_url: String,
    pub stop_deadline: Span,
    pub max_connections: usize,
    pub header_timeout: Span,
    pub body_timeout: Span,
    pub max_header_bytes: usize,
}

impl Server {
    fn check(&self) -> anyhow::Result<()> {
        for (key, value, least, most) in [
            ("max_connections", self.max_connections, 1, 100_000),
            ("max_header_bytes", self.max_header_bytes, 1_024, 256 * 1_024),
        ] {
            if !(least..=most).contains(&value) {
                bail!("server.{key}: must lie between {least} and {most}, is {value}");
            }
        }
        for (key, value) in [("header_timeout", self.header_timeout), ("body_timeout", self.body_timeout)] {
            if value.0 < Duration::from_millis(100) || value.0 > Duration::from_hours(1) {
                bail!("server.{key}: must lie between 100ms and 60m");
            }
        }
        Ok(())
    }

    /// By which others reach us, if they do.
    pub fn public_url(&self) -> anyhow::Result<Option<Url>> {
        if self.public_url.is_empty() {
            return Ok(None);
        }
        let url = Url::parse(&self.public_url).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none()
        });
        url.map(Some).with_context(|| {
            format!(
                "server.public_url: `{}` is not a valid URL; use https://campanile.example.com",
                self.public_url
            )
        })
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    #[serde(serialize_with = "redacted")]
    pub admin_key: String,
    pub admin_key_file: PathBuf,
}

impl Auth {
    /// The configured key, or that of the configured file.
    pub fn given_key(&self) -> anyhow::Result<Option<String>> {
        if !self.admin_key.is_empty() {
            return Ok(Some(self.admin_key.clone()));
        }
        let Some(file) = given(&self.admin_key_file) else { return Ok(None) };
        let key =
            read_key(&file).with_context(|| format!("cannot read auth.admin_key_file {}", file.display()))?;
        Ok(Some(key))
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("admin_key_file", &self.admin_key_file).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub filter: String,
    #[serde(deserialize_with = "word")]
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSection {
    pub instance: String,
    pub roles: String,
    pub lease: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanOut {
    pub poll_interval: Span,
    pub batch: usize,
    pub initial_delay: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    pub batch: usize,
    pub poll_interval: Span,
    pub max_refusals: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    pub workers: usize,
    pub max_workers: usize,
    pub prefetch: usize,
    pub batch: usize,
    pub linger: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recover {
    pub republish_after: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retain {
    pub days: u32,
    pub interval: Span,
}

/// One of a few words; read as text first, so that an error lists them, where `config` would name the Rust type.
fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// A duration as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Span {
    /// As the deadline of a provider.
    fn of_an_attempt(self, section: &str) -> anyhow::Result<Duration> {
        self.up_to(10, &format!("{section}.deadline"))
    }

    fn up_to(self, minutes: u64, key: &str) -> anyhow::Result<Duration> {
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

fn redacted<S: Serializer>(secret: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if secret.is_empty() { "" } else { "(redacted)" })
}

/// A text that is shown to nobody.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        redacted(&self.0, serializer)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

impl Config {
    fn check(&self) -> anyhow::Result<()> {
        let database = self.database.choice(&self.data_dir)?;
        let broker = self.broker_choice()?;
        let missing = self.roles()?.missing();
        // Nobody else can run what this instance leaves out.
        let alone = match (&database, &broker) {
            (DatabaseChoice::Sqlite { .. }, _) => Some("SQLite supports one instance"),
            (_, BrokerChoice::InProcess) => Some("the in-process broker supports one instance"),
            (DatabaseChoice::Postgres(_), BrokerChoice::RabbitMq(_)) => None,
        };
        if let Some(why) = alone.filter(|_| !missing.is_empty()) {
            let missing: Vec<&str> = missing.into_iter().map(campanile_engine::Role::as_str).collect();
            bail!(
                "engine.roles: {why}, but this instance does not run {}; add these roles, \
                 or use PostgreSQL and RabbitMQ",
                missing.join(", ")
            );
        }
        self.server.check()?;
        for (key, value) in [
            ("fan_out.batch", self.fan_out.batch),
            ("publish.batch", self.publish.batch),
            ("receive.workers", self.receive.workers),
            ("receive.max_workers", self.receive.max_workers),
            ("receive.batch", self.receive.batch),
            ("receive.prefetch", self.receive.prefetch),
        ] {
            if value == 0 || value > 100_000 {
                bail!("{key}: must lie between 1 and 100000, is {value}");
            }
        }
        if self.engine.lease.0 < Duration::from_secs(2) {
            bail!("engine.lease: must be at least 2s, so that a send attempt fits");
        }
        if self.recover.republish_after.0 < Duration::from_secs(1) {
            bail!(
                "recover.republish_after: must be at least 1s, or rows in progress would be published again"
            );
        }
        self.send.check()?;
        self.providers()?;
        tracing_subscriber::EnvFilter::try_new(&self.log.filter)
            .map_err(|error| anyhow::anyhow!("log.filter: `{}` is not a filter: {error}", self.log.filter))?;
        Ok(())
    }

    /// The providers of each channel, which connect to nobody yet.
    pub fn providers(&self) -> anyhow::Result<Providers> {
        self.channels.providers(self.server.public_url()?.as_ref())
    }

    /// What Twilio tells later, if it is asked to.
    pub fn twilio_callbacks(&self) -> anyhow::Result<Option<TwilioCallbacks>> {
        let auth_tokens = self.channels.sms.auth_tokens()?;
        let url = self.server.public_url()?.filter(|_| !auth_tokens.is_empty());
        Ok(url.map(|url| TwilioCallbacks { url: twilio_callback(&url), auth_tokens }))
    }

    pub fn broker_choice(&self) -> anyhow::Result<BrokerChoice> {
        self.broker.choice(self.user_types()?.queues())
    }

    pub fn roles(&self) -> anyhow::Result<Roles> {
        self.engine.roles.parse().map_err(|error| anyhow::anyhow!("engine.roles: {error}"))
    }

    fn user_types(&self) -> anyhow::Result<UserTypes> {
        let mut user_types = self.user_types.clone();
        self.channels.slack.set_default_webhooks(&mut user_types)?;
        UserTypes::new(user_types).map_err(anyhow::Error::msg)
    }

    pub fn engine(&self) -> anyhow::Result<EngineConfig> {
        let instance = match self.engine.instance.as_str() {
            "" => format!("{}-{}", hostname(), std::process::id()),
            name => name.to_owned(),
        };
        Ok(EngineConfig {
            instance,
            roles: self.roles()?,
            user_types: self.user_types()?,
            fan_out: FanOutConfig {
                poll_interval: self.fan_out.poll_interval.0,
                batch: self.fan_out.batch,
                initial_delay: self.fan_out.initial_delay.0,
            },
            publish: PublishConfig {
                batch: self.publish.batch,
                poll_interval: self.publish.poll_interval.0,
                max_refusals: self.publish.max_refusals,
            },
            receive: ReceiveConfig {
                workers: self.receive.workers,
                max_workers: self.receive.max_workers,
                prefetch: self.receive.prefetch,
                batch: self.receive.batch,
                linger: self.receive.linger.0,
            },
            send: self.send.engine(),
            recover: RecoverConfig { republish_after: self.recover.republish_after.0 },
            retain: RetainConfig {
                age: (self.retain.days > 0).then(|| Duration::from_hours(24 * u64::from(self.retain.days))),
                interval: self.retain.interval.0,
            },
            lease: self.engine.lease.0,
        })
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "campanile".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_complete_and_right() {
        let config = Config::load(&Flags::default()).unwrap();
        assert_eq!(UserTypes::new(config.user_types.clone()).unwrap(), UserTypes::default());
        let printed = toml::to_string(&config).unwrap();
        for key in REFERENCE.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key) {
            assert!(printed.contains(&format!("{key} = ")), "{key} is in the file and not in the type");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut config = Config::load(&Flags::default()).unwrap();
        config.auth.admin_key = "very-secret".to_owned();
        assert!(!toml::to_string(&config).unwrap().contains("very-secret"));
        assert!(!format!("{config:?}").contains("very-secret"));
    }
}
