//! The servers around the instances, and how to harm them. `cargo xtask` starts them and passes their addresses.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(90);

/// The servers that the environment names. A server that is given only by its address is not restarted.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    pub database_url: Option<String>,
    pub broker_url: Option<String>,
    pg_ctl: Option<OsString>,
    rabbitmqctl: Option<OsString>,
    rabbitmq_node: Option<OsString>,
    pub faketime: Option<String>,
}

impl Servers {
    pub fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let script = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Servers {
            database_url: text("CAMPANILE_TEST_DATABASE_URL"),
            broker_url: text("CAMPANILE_TEST_BROKER_URL"),
            pg_ctl: script("CAMPANILE_TEST_PG_CTL"),
            rabbitmqctl: script("CAMPANILE_TEST_RABBITMQCTL"),
            rabbitmq_node: script("CAMPANILE_TEST_RABBITMQ_NODE"),
            faketime: text("CAMPANILE_TEST_FAKETIME"),
        }
    }

    pub fn restarts_postgres(&self) -> bool {
        self.pg_ctl.is_some()
    }

    pub fn steers_rabbitmq(&self) -> bool {
        self.rabbitmqctl.is_some()
    }

    pub fn restarts_rabbitmq(&self) -> bool {
        self.rabbitmq_node.is_some()
    }

    pub async fn pg_ctl(&self, arguments: &[&str]) -> Result<()> {
        run(self.pg_ctl.as_ref(), "CAMPANILE_TEST_PG_CTL", arguments).await.map(drop)
    }

    pub async fn rabbitmqctl(&self, arguments: &[&str]) -> Result<String> {
        run(self.rabbitmqctl.as_ref(), "CAMPANILE_TEST_RABBITMQCTL", arguments).await
    }

    /// `kill`, `stop`, `start`, `wipe`.
    pub async fn rabbitmq_node(&self, what: &str) -> Result<()> {
        run(self.rabbitmq_node.as_ref(), "CAMPANILE_TEST_RABBITMQ_NODE", &[what]).await.map(drop)
    }
}

async fn run(script: Option<&OsString>, variable: &str, arguments: &[&str]) -> Result<String> {
    let script = script.with_context(|| format!("{variable} is not set"))?;
    let said = arguments.join(" ");
    let mut command = Command::new(script);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let Ok(output) = tokio::time::timeout(LIMIT, command.output()).await else {
        bail!("{variable} {said} took longer than {LIMIT:?}");
    };
    let output = output.with_context(|| format!("{variable} can't be run"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{variable} {said}: {}; {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Host and port of a URL such as `amqp://guest:guest@127.0.0.1:5672/%2f`.
pub fn host_and_port(url: &str) -> Result<&str> {
    let (_, rest) = url.split_once("://").with_context(|| format!("`{}` is no URL", scheme(url)))?;
    let place = rest.split(['/', '?']).next().unwrap_or(rest);
    Ok(place.rsplit('@').next().unwrap_or(place))
}

/// The URL with another address.
pub fn by_way_of(url: &str, address: std::net::SocketAddr) -> Result<String> {
    let place = host_and_port(url)?;
    Ok(url.replacen(place, &address.to_string(), 1))
}

/// The URL of another database on the same PostgreSQL.
pub fn with_database(url: &str, name: &str) -> Result<String> {
    let end_of_place = url.find("://").map_or(0, |at| at + 3);
    let path = url[end_of_place..].find('/').context("the database URL names no database")?;
    Ok(format!("{}/{name}", &url[..end_of_place + path]))
}

fn scheme(url: &str) -> &str {
    url.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_led_by_way_of_a_proxy() {
        let proxy = "127.0.0.1:99".parse().unwrap();
        let led = |url| by_way_of(url, proxy).unwrap();
        assert_eq!(led("amqp://guest:guest@127.0.0.1:5672/%2f"), "amqp://guest:guest@127.0.0.1:99/%2f");
        assert_eq!(led("postgres://postgres@db:5432/shop?x=1"), "postgres://postgres@127.0.0.1:99/shop?x=1");
        assert!(by_way_of("host=db", proxy).is_err());
    }

    #[test]
    fn a_round_has_a_database_of_its_own() {
        assert_eq!(
            with_database("postgres://p@h:1/postgres", "torture_1").unwrap(),
            "postgres://p@h:1/torture_1"
        );
    }
}
