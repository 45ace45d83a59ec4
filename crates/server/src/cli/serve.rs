//! `campanile serve` and `campanile migrate`.

use std::net::SocketAddr;
use std::pin::pin;

use anyhow::Context;
use campanile_engine::Roles;
use campanile_store::postgres::Postgres;
use campanile_store::sqlite::Sqlite;
use clap::Args;

use super::CommandResult;
use super::output::say;
use crate::app;
use crate::config::{Config, DatabaseChoice};
use crate::data_folder;

/// Flags of `serve`; `config check` and `doctor` take the same and check what would be served.
#[derive(Debug, Default, Args)]
pub struct Serve {
    /// Where to listen [default: 127.0.0.1:8400]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Roles of this instance, separated by commas: `api`, `fan_out`, `publish`, `receive`, `send`, `mailings`,
    /// `recover` [default: all]
    #[arg(long, value_name = "ROLES", value_parser = roles)]
    pub roles: Option<String>,
    #[command(flatten)]
    pub backend: Backend,
}

/// The two URLs that choose the database and the broker
#[derive(Debug, Clone, Default, Args)]
pub struct Backend {
    /// The database, as `postgres://user:password@host:5432/database` [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// The broker, as `amqp://user:password@host:5672/vhost` [default: one inside this process]
    #[arg(long, value_name = "URL")]
    pub broker_url: Option<String>,
}

/// Validates roles here, so that a wrong one is a usage error.
fn roles(text: &str) -> Result<String, String> {
    text.parse::<Roles>().map(|roles| roles.to_string())
}

impl Serve {
    pub async fn run(&self, config: Config) -> CommandResult {
        app::start_logging(&config);
        let mut told_to_stop = pin!(app::told_to_stop());
        let served = tokio::select! {
            served = app::serve(config) => served?,
            () = &mut told_to_stop => return Ok(()),
        };
        // A server continues even if its standard output is closed.
        drop(say!("Campanile listens on {}", served.url()));
        if !served.captured.is_empty() {
            drop(say!(
                "{} messages are captured, not sent; see GET /v1/captured",
                served.captured.join(", ")
            ));
        }
        let lost = tokio::select! {
            () = &mut told_to_stop => None,
            error = served.lost() => Some(error),
        };
        let stopped = served.stop().await;
        match lost {
            Some(error) => Err(error.into()),
            None => Ok(stopped?),
        }
    }
}

#[derive(Debug, Args)]
pub struct Migrate {
    /// The database, as `postgres://user:password@host:5432/database` [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
}

impl Migrate {
    pub async fn run(&self, config: Config) -> CommandResult {
        let place = match config.database.choice(&config.data_dir)? {
            DatabaseChoice::Sqlite { path } => {
                data_folder::make(&config)?;
                Sqlite::open(&path).context("cannot create or upgrade the schema")?;
                path.display().to_string()
            }
            DatabaseChoice::Postgres(postgres) => {
                for migration in Postgres::migrate(&postgres).await? {
                    say!("applied {migration}")?;
                }
                Postgres::location(&postgres)?
            }
        };
        say!("{place} is up to date")?;
        Ok(())
    }
}
