//! Databases and queues that the benchmark creates on the servers, and must remove.

use std::fmt;

use anyhow::{Context, Result};
use campanile_broker::{RabbitMq, RabbitMqConfig};
use campanile_domain::queue::Queue;

use crate::bench::Bench;
use crate::database::Database;

/// Told apart by its name.
#[derive(Debug, Clone)]
pub enum Site {
    Database(Database),
    Queues(RabbitMqConfig),
}

impl Site {
    /// Creates a database. It is removed however the benchmark ends.
    pub async fn database(bench: &Bench) -> Result<Database> {
        let name = format!("campanile_bench_{}", uuid::Uuid::now_v7().simple());
        let database = Database::Postgres { server_url: bench.servers.database_url.clone(), name };
        bench.note(Site::Database(database.clone()));
        database.create().await?;
        Ok(database)
    }

    /// A configuration with queues of its own, which the engine will declare.
    pub fn queues(bench: &Bench, queues: Vec<Queue>) -> RabbitMqConfig {
        let config = of_its_own(&bench.servers.broker_url, queues);
        bench.note(Site::Queues(config.clone()));
        config
    }

    pub async fn clear(&self) -> Result<()> {
        match self {
            Site::Database(database) => database.remove().await,
            Site::Queues(config) => RabbitMq::remove(config).await.context("the queues can't be removed"),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Database(Database::Postgres { name, .. }) => write!(f, "the database {name}"),
            Site::Database(Database::Sqlite { file }) => write!(f, "the file {}", file.display()),
            Site::Queues(config) => write!(f, "the queues {}…", config.prefix),
        }
    }
}

/// Checks that RabbitMQ is reachable: an engine would wait for it.
pub async fn reach_broker(url: &str) -> Result<()> {
    let nothing = of_its_own(url, Vec::new());
    RabbitMq::remove(&nothing).await.context("RabbitMQ can't be used; see --broker-url")
}

/// The prefix separates these queues from others on the same server. It is short, because each message contains it
/// twice and most installations have none.
fn of_its_own(url: &str, queues: Vec<Queue>) -> RabbitMqConfig {
    let [.., first, second] = uuid::Uuid::now_v7().into_bytes();
    let prefix = format!("b{first:02x}{second:02x}-");
    RabbitMqConfig { url: url.to_owned(), ca_file: None, prefix, queues, limit: usize::MAX }
}
