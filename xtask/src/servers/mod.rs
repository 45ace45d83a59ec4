//! The servers that tests need: PostgreSQL with and without PgBouncer, and RabbitMQ. They are started for one run and
//! ended after it.
//!
//! A second process, the keeper, starts them during the build. It ends them when the pipe between both processes
//! closes, which happens however xtask ends, even by `kill -9`. So there is only one way of ending them, and no signal
//! to handle. If the environment names a server of a kind, it is used, and none of that kind is started.

mod account;
mod certificates;
mod install;
mod keeper;
mod pgbouncer;
mod ports;
mod postgres;
mod process_group;
mod programs;
mod rabbitmq;
mod script;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::run::headline;

pub use install::install_packages;
pub use keeper::keep;
pub use programs::Missing;

const DATABASE_URL: &str = "CAMPANILE_TEST_DATABASE_URL";
const PGBOUNCER_URL: &str = "CAMPANILE_TEST_PGBOUNCER_URL";
const PG_CTL: &str = "CAMPANILE_TEST_PG_CTL";
const BROKER_URL: &str = "CAMPANILE_TEST_BROKER_URL";
const BROKER_TLS_URL: &str = "CAMPANILE_TEST_BROKER_TLS_URL";
const RABBITMQCTL: &str = "CAMPANILE_TEST_RABBITMQCTL";
const RABBITMQ_NODE: &str = "CAMPANILE_TEST_RABBITMQ_NODE";
const CA_FILE: &str = "CAMPANILE_TEST_CA_FILE";
const FAKETIME: &str = "CAMPANILE_TEST_FAKETIME";
const VALGRIND: &str = "CAMPANILE_TEST_VALGRIND";
const SMTP_SINK: &str = "CAMPANILE_TEST_SMTP_SINK";
const PYTHON: &str = "CAMPANILE_TEST_PYTHON";

/// The environment variables with which tests find the servers.
pub type Variables = BTreeMap<String, String>;

/// Which servers to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct Wanted {
    /// PostgreSQL and PgBouncer.
    #[arg(long)]
    database: bool,
    /// RabbitMQ.
    #[arg(long)]
    broker: bool,
}

impl Wanted {
    /// The servers that the environment does not name.
    fn by(environment: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = |variable| environment(variable).is_some_and(|url| !url.is_empty());
        Self { database: !named(DATABASE_URL), broker: !named(BROKER_URL) }
    }

    fn anything(self) -> bool {
        self.database || self.broker
    }
}

/// The keeper's only output, a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Ready(Variables),
    Failed(String),
}

/// Servers that are starting or running. Dropping this ends them.
#[derive(Debug)]
pub struct Servers {
    /// `None` if the environment names all servers.
    keeper: Option<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    process: Child,
    report: BufReader<ChildStdout>,
    started: Instant,
}

impl Servers {
    /// Starts the servers in the background. Missing programs are installed first.
    pub fn start() -> Result<Self> {
        let wanted = Wanted::by(|name| std::env::var_os(name));
        if !wanted.anything() {
            return Ok(Self { keeper: None });
        }
        install::whatever_is_missing(wanted)?;
        Ok(Self { keeper: Some(Keeper::start(wanted)?) })
    }

    /// Waits until all servers accept connections, and returns their variables. Must be called once.
    pub fn ready(&mut self) -> Result<Variables> {
        match &mut self.keeper {
            Some(keeper) => keeper.ready(),
            None => Ok(Variables::new()),
        }
    }
}

impl Keeper {
    fn start(wanted: Wanted) -> Result<Self> {
        let ourselves = std::env::current_exe().context("cannot find xtask's own program")?;
        let mut command = Command::new(ourselves);
        command.arg("keep");
        if wanted.database {
            command.arg("--database");
        }
        if wanted.broker {
            command.arg("--broker");
        }
        // In its own group it does not get Ctrl-C, because it must clean up after that.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start the server supervisor")?;
        let report = process.stdout.take().context("the server supervisor has no output")?;
        Ok(Self { process, report: BufReader::new(report), started: Instant::now() })
    }

    fn ready(&mut self) -> Result<Variables> {
        let mut line = String::new();
        self.report.read_line(&mut line).context("cannot read from the server supervisor")?;
        if line.is_empty() {
            bail!("the server supervisor died before the servers were ready");
        }
        match serde_json::from_str(&line).context("cannot parse the report of the server supervisor")? {
            Report::Failed(why) => bail!("{why}"),
            Report::Ready(variables) => {
                println!("Servers ready after {:.1} s.", self.started.elapsed().as_secs_f32());
                Ok(variables)
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        if let Err(error) = self.process.wait() {
            eprintln!("cannot wait for the end of the servers: {error}");
        }
    }
}

/// `cargo xtask servers`: runs the servers until Ctrl-C, for tests that are run in other ways.
pub fn run() -> Result<()> {
    headline("Servers: PostgreSQL, PgBouncer, RabbitMQ");
    let mut servers = Servers::start()?;
    let variables = servers.ready()?;
    let Some(keeper) = &mut servers.keeper else {
        bail!("{DATABASE_URL} and {BROKER_URL} name servers already; there is nothing to start");
    };
    println!("Press Ctrl-C to stop them. For tests in another terminal:\n\n{}\n", exports(&variables));
    // The keeper writes only once, so this returns when it ends.
    keeper.report.read_line(&mut String::new()).context("cannot read from the server supervisor")?;
    bail!("the server supervisor died")
}

fn exports(variables: &Variables) -> String {
    let lines = variables.iter().map(|(name, value)| format!("export {name}={}", script::quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_named_are_not_started() {
        let wanted = |names: &'static [&str]| {
            Wanted::by(|name| names.contains(&name).then(|| OsString::from("scheme://somewhere")))
        };
        assert_eq!(wanted(&[]), Wanted { database: true, broker: true });
        assert_eq!(wanted(&[DATABASE_URL]), Wanted { database: false, broker: true });
        assert_eq!(wanted(&[BROKER_URL]), Wanted { database: true, broker: false });
        assert!(!wanted(&[DATABASE_URL, BROKER_URL]).anything());
    }

    #[test]
    fn empty_name_is_no_name() {
        assert_eq!(Wanted::by(|_| Some(OsString::new())), Wanted { database: true, broker: true });
    }

    #[test]
    fn exports_can_be_pasted_into_a_shell() {
        let variables = Variables::from([("A".to_owned(), "amqp://guest@host/%2f?x=1&y".to_owned())]);
        assert_eq!(exports(&variables), "export A='amqp://guest@host/%2f?x=1&y'");
    }
}
