//! A database and queues of our own, the people in it, and what happens to them; made for one measurement, and gone after it.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::PoisonError;

use anyhow::{Context, Result, ensure};
use campanile_broker::{RabbitMq, RabbitMqConfig};
use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;
use tokio::process::Command;

use crate::bench::Bench;
use crate::database::Database;
use crate::engine::Engine;

/// The queues that an engine with its default user types declares.
const QUEUES: [&str; 6] = [
    "notification.restaurant",
    "notification.customer",
    "notification.agency",
    "notification.admin",
    "notification.guest",
    "notification.broadcast",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// PostgreSQL and RabbitMQ.
    Servers,
    /// PostgreSQL and the in-process broker.
    Mixed,
    /// SQLite and the in-process broker.
    Embedded,
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Backend::Servers => "PostgreSQL + RabbitMQ",
            Backend::Mixed => "PostgreSQL + in-process",
            Backend::Embedded => "SQLite + in-process",
        }
    }
}

/// A database and queues, which stay when nobody removes them.
#[derive(Debug, Clone)]
pub struct Site {
    pub name: String,
    database: Database,
    broker: Option<RabbitMqConfig>,
}

impl Site {
    pub async fn clear(&self) -> Result<()> {
        self.database.remove().await?;
        if let Some(broker) = &self.broker {
            RabbitMq::remove(broker).await.context("the queues can't be removed")?;
        }
        Ok(())
    }
}

/// What tells these queues from others on the same server. It goes along twice with each message, so it is short: most installations have none.
pub fn queue_prefix() -> String {
    let [.., first, second] = uuid::Uuid::now_v7().into_bytes();
    format!("b{first:02x}{second:02x}-")
}

#[derive(Debug)]
pub struct World {
    pub backend: Backend,
    pub database: Database,
    binary: PathBuf,
    variables: Vec<(String, String)>,
    site: Site,
    /// The engine's data folder.
    folder: TempDir,
}

impl World {
    /// With tables, and nothing in them.
    pub async fn build(bench: &Bench, backend: Backend) -> Result<Self> {
        let servers = &bench.servers;
        let folder = tempfile::Builder::new().prefix("campanile-bench-").tempdir()?;
        let name = format!("campanile_bench_{}", uuid::Uuid::now_v7().simple());
        let mut variables = bench.settings.clone();
        variables.push(("CAMPANILE_DATA_DIR".to_owned(), folder.path().display().to_string()));
        let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
        let database = match backend {
            Backend::Servers | Backend::Mixed => {
                let database = Database::create(&servers.database_url, &name).await?;
                // The limit is measured without TLS, too.
                let url = database.url();
                let without_tls = if url.contains('?') { "" } else { "?sslmode=disable" };
                set("CAMPANILE_DATABASE__URL", format!("{url}{without_tls}"));
                database
            }
            Backend::Embedded => Database::Sqlite { file: folder.path().join("campanile.db") },
        };
        let broker = (backend == Backend::Servers).then(|| RabbitMqConfig {
            url: servers.broker_url.clone(),
            ca_file: None,
            prefix: queue_prefix(),
            queues: QUEUES.iter().flat_map(|queue| [(*queue).to_owned(), format!("{queue}.high")]).collect(),
            limit: usize::MAX,
        });
        if let Some(broker) = &broker {
            set("CAMPANILE_BROKER__URL", broker.url.clone());
            set("CAMPANILE_BROKER__PREFIX", broker.prefix.clone());
        }
        let site = Site { name, database: database.clone(), broker };
        bench.sites.lock().unwrap_or_else(PoisonError::into_inner).push(site.clone());
        let world = World { backend, database, binary: bench.binary.clone(), variables, site, folder };
        world.migrate().await?;
        Ok(world)
    }

    async fn migrate(&self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg("migrate").envs(self.variables.iter().cloned()).stdout(Stdio::null());
        ensure!(command.status().await?.success(), "the tables can't be made; what is wrong stands above");
        Ok(())
    }

    /// For engines that are started from now on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    pub async fn start(&self) -> Result<Engine> {
        Engine::start(&self.binary, &self.variables, None).await
    }

    pub async fn start_roles(&self, roles: &str) -> Result<Engine> {
        Engine::start(&self.binary, &self.variables, Some(roles)).await
    }

    /// After a measurement that failed, `Bench::clear` does it.
    pub async fn demolish(self, bench: &Bench) -> Result<()> {
        self.site.clear().await?;
        let mut sites = bench.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.retain(|site| site.name != self.site.name);
        Ok(self.folder.close()?)
    }
}
