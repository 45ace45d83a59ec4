//! A database and queues for one measurement, with the people in it; removed after it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use campanile_domain::people::user_type::UserTypes;
use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;

use crate::bench::Bench;
use crate::database::Database;
use crate::engine::{self, Engine};
use crate::site::Site;

const MIGRATE_LIMIT: Duration = Duration::from_mins(1);

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

#[derive(Debug)]
pub struct World {
    pub backend: Backend,
    pub database: Database,
    binary: PathBuf,
    variables: Vec<(String, String)>,
    sites: Vec<Site>,
    /// The engine's data folder.
    folder: TempDir,
}

impl World {
    /// Creates a world with empty tables.
    pub async fn build(bench: &Bench, backend: Backend) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("campanile-bench-").tempdir()?;
        let mut variables = bench.settings.clone();
        let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
        set("CAMPANILE_DATA_DIR", folder.path().display().to_string());
        let mut sites = Vec::new();
        let database = match backend {
            Backend::Servers | Backend::Mixed => {
                let database = Site::database(bench).await?;
                set("CAMPANILE_DATABASE__URL", database.url());
                sites.push(Site::Database(database.clone()));
                database
            }
            Backend::Embedded => Database::Sqlite { file: folder.path().join("campanile.db") },
        };
        if backend == Backend::Servers {
            let broker = Site::queues(bench, UserTypes::default().queues());
            set("CAMPANILE_BROKER__URL", broker.url.clone());
            set("CAMPANILE_BROKER__PREFIX", broker.prefix.clone());
            sites.push(Site::Queues(broker));
        }
        let world = World { backend, database, binary: bench.binary.clone(), variables, sites, folder };
        world.migrate().await?;
        Ok(world)
    }

    async fn migrate(&self) -> Result<()> {
        let mut command = engine::command(&self.binary, &self.variables);
        command.arg("migrate").stdout(Stdio::null());
        let ended = tokio::time::timeout(MIGRATE_LIMIT, command.status());
        let status = ended.await.context("`campanile migrate` does not end")??;
        ensure!(status.success(), "cannot create the tables; see the output above");
        Ok(())
    }

    pub async fn has_pending_events(&self) -> Result<bool> {
        let any = "SELECT count(*) FROM (SELECT 1 FROM event_outbox WHERE status = 'PENDING' LIMIT 1) p";
        Ok(self.database.number(any).await? > 0.0)
    }

    /// Sets a variable for engines that are started from now on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    pub async fn start(&self) -> Result<Engine> {
        Engine::start(&self.binary, &self.variables, None).await
    }

    pub async fn start_roles(&self, roles: &str) -> Result<Engine> {
        Engine::start(&self.binary, &self.variables, Some(roles)).await
    }

    /// Removes the world. After a failed measurement `Bench::clear` does it.
    pub async fn demolish(self, bench: &Bench) -> Result<()> {
        for site in &self.sites {
            bench.remove(site).await?;
        }
        Ok(self.folder.close()?)
    }
}
