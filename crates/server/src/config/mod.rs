//! Configuration: the shipped file with every default, then the operator's file, then variables, then flags. Each
//! section has a file, which checks it and names a wrong key; this one checks what concerns several sections.

mod auth;
mod backend;
mod channels;
mod engine;
mod fan_out;
mod load;
mod log;
mod publish;
mod receive;
mod recover;
mod retain;
mod send;
mod server;
mod values;

use std::path::PathBuf;

use anyhow::bail;
use campanile_channels::Providers;
use campanile_domain::people::user_type::{UserType, UserTypes};
use campanile_engine::EngineConfig;
use serde::{Deserialize, Serialize};

use auth::Auth;
use backend::{Broker, Database};
pub use backend::{BrokerChoice, DatabaseChoice, MAX_UNDELIVERED};
use channels::{Channels, twilio_callback};
use engine::EngineSection;
use fan_out::FanOut;
pub use load::{Flags, variable_names};
use log::Log;
pub use log::LogFormat;
use publish::Publish;
use receive::Receive;
use recover::Recover;
use retain::Retain;
use send::Sends;
use server::Server;

use crate::http::TwilioCallbacks;

/// The reference: every key with a comment and its default.
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

impl Config {
    fn check(&self) -> anyhow::Result<()> {
        let database = self.database.choice(&self.data_dir)?;
        let broker = self.broker_choice()?;
        let missing = self.engine.roles()?.missing();
        // With these backends no other instance can run the missing roles.
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
        self.auth.check()?;
        self.fan_out.check()?;
        self.publish.check()?;
        self.receive.check()?;
        self.engine.check()?;
        self.recover.check()?;
        self.send.check()?;
        self.providers()?;
        self.log.check()?;
        Ok(())
    }

    /// The providers of each channel; none connects yet.
    pub fn providers(&self) -> anyhow::Result<Providers> {
        self.channels.providers(self.server.public_url()?.as_ref())
    }

    /// What is needed to receive Twilio's callbacks, if they are enabled.
    pub fn twilio_callbacks(&self) -> anyhow::Result<Option<TwilioCallbacks>> {
        let auth_tokens = self.channels.sms.auth_tokens()?;
        let url = self.server.public_url()?.filter(|_| !auth_tokens.is_empty());
        Ok(url.map(|url| TwilioCallbacks { url: twilio_callback(&url), auth_tokens }))
    }

    pub fn broker_choice(&self) -> anyhow::Result<BrokerChoice> {
        self.broker.choice(self.user_types()?.queues())
    }

    fn user_types(&self) -> anyhow::Result<UserTypes> {
        let mut user_types = self.user_types.clone();
        self.channels.slack.set_default_webhooks(&mut user_types)?;
        UserTypes::new(user_types).map_err(anyhow::Error::msg)
    }

    pub fn engine(&self) -> anyhow::Result<EngineConfig> {
        Ok(EngineConfig {
            instance: self.engine.instance(),
            roles: self.engine.roles()?,
            user_types: self.user_types()?,
            fan_out: self.fan_out.engine(),
            publish: self.publish.engine(),
            receive: self.receive.engine(),
            send: self.send.engine(),
            recover: self.recover.engine(),
            retain: self.retain.engine(),
            lease: self.engine.lease.0,
        })
    }
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
