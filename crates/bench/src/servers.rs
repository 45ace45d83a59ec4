//! The PostgreSQL and RabbitMQ servers for the measurements: those given, or own ones. `cargo xtask servers` starts own
//! ones from Debian's packages, and stops them when the benchmark ends.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::tool;

const DATABASE_URL: &str = "CAMPANILE_TEST_DATABASE_URL";
const BROKER_URL: &str = "CAMPANILE_TEST_BROKER_URL";
/// Programs may have to be installed, and xtask to be built.
const START_LIMIT: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub struct Servers {
    pub database_url: String,
    pub broker_url: String,
    /// Stops own servers when dropped.
    _own: Option<Child>,
}

impl Servers {
    pub async fn find(database_url: Option<String>, broker_url: Option<String>) -> Result<Self> {
        if let (Some(database_url), Some(broker_url)) = (&database_url, &broker_url) {
            let (database_url, broker_url) = (database_url.clone(), broker_url.clone());
            return Ok(Servers { database_url, broker_url, _own: None });
        }
        let (own, variables) =
            tokio::time::timeout(START_LIMIT, start(database_url.as_ref(), broker_url.as_ref()))
                .await
                .context("the servers did not start in time")??;
        let url = |given: Option<String>, name: &str| {
            given
                .or_else(|| variables.get(name).cloned())
                .with_context(|| format!("xtask does not tell {name}"))
        };
        let (database_url, broker_url) = (url(database_url, DATABASE_URL)?, url(broker_url, BROKER_URL)?);
        Ok(Servers { database_url, broker_url, _own: Some(own) })
    }
}

async fn start(
    database_url: Option<&String>,
    broker_url: Option<&String>,
) -> Result<(Child, BTreeMap<String, String>)> {
    eprintln!("No server URLs given; starting PostgreSQL and RabbitMQ.");
    let mut command: Command = tool::cargo(&["xtask", "servers"]).into();
    for (name, url) in [(DATABASE_URL, database_url), (BROKER_URL, broker_url)] {
        match url {
            Some(url) => command.env(name, url),
            None => command.env_remove(name),
        };
    }
    // It stops its servers when it ends, for whatever reason.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("`cargo xtask servers` can't be started")?;
    let mut lines = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
    let mut variables = BTreeMap::new();
    while let Some(line) = lines.next_line().await? {
        if let Some((name, value)) = line.strip_prefix("export ").and_then(|export| export.split_once('=')) {
            variables.insert(name.to_owned(), value.trim_matches('\'').to_owned());
        } else if !variables.is_empty() {
            // Drains its output, so that it never blocks.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((child, variables));
        }
    }
    bail!("`cargo xtask servers` exited before the servers were ready; see its output above")
}
