//! The surroundings of one test's instances: a folder, and on servers a database and broker names of its own, which are
//! removed at the end.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use campanile_broker::{RabbitMq, RabbitMqConfig};
use campanile_domain::people::user_type::UserTypes;
use campanile_store::conformance::TestDatabase;
use campanile_store::postgres::test_database::Database;
use campanile_store::sqlite::Clock;
use campanile_store::sqlite::test_database::File;
use campanile_testkit::Backend;
use tempfile::TempDir;

use super::KEY;

const BROKER: &str = "CAMPANILE_TEST_BROKER_URL";

#[derive(Debug)]
pub struct Home {
    folder: TempDir,
    pub database: Option<Database>,
    pub broker: Option<RabbitMqConfig>,
}

impl Home {
    pub fn new(backend: Backend) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let database = (backend != Backend::Embedded).then(|| wait(Database::new()));
        let broker = (backend == Backend::Servers).then(broker);
        Home { folder, database, broker }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a statement on a connection of its own.
    pub async fn execute(&self, sql: &str) {
        if let Some(database) = &self.database {
            return database.execute(sql).await;
        }
        let path = self.path().join("campanile.db");
        File { path, clock: Clock::default() }.execute(sql).await;
    }

    /// The number that a query answers.
    pub async fn count(&self, sql: &str) -> i64 {
        if let Some(database) = &self.database {
            return database.count(sql).await;
        }
        let path = self.path().join("campanile.db");
        File { path, clock: Clock::default() }.count(sql).await
    }

    /// The binary, configured for this home.
    pub fn campanile(&self) -> Command {
        let mut command = campanile(self.path());
        if let Some(database) = &self.database {
            command
                .env("CAMPANILE_DATABASE__URL", &database.url)
                .env("CAMPANILE_DATABASE__MAX_CONNECTIONS", "8");
            // The claims of a dead instance end after this time.
            command.env("CAMPANILE_ENGINE__LEASE", "4s");
        }
        if let Some(broker) = &self.broker {
            command.env("CAMPANILE_BROKER__URL", &broker.url).env("CAMPANILE_BROKER__PREFIX", &broker.prefix);
        }
        command
    }
}

/// Unique names for each test: tests run in many processes, and several in one.
fn broker() -> RabbitMqConfig {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var(BROKER).unwrap_or_else(|_| {
        panic!(
            "{BROKER} is not set: run `cargo xtask test`, which brings up a RabbitMQ, or name one yourself"
        )
    });
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    RabbitMqConfig {
        url,
        ca_file: None,
        prefix: format!("test-{}-{number}.", std::process::id()),
        queues: UserTypes::default().queues(),
        limit: 5_000,
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(config) = self.broker.take() {
            // The broker may be away; then there is nothing to remove.
            drop(wait(async move { RabbitMq::remove(&config).await }));
        }
    }
}

/// Runs on a runtime of its own: the caller may be inside one that must not be blocked.
fn wait<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let waited = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("there are threads").block_on(work)
    });
    waited.join().expect("the servers are there")
}

/// A shell with this command as `"$0"`, in the same environment.
pub fn in_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(command.get_program());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The binary with a clean environment and short retry delays.
pub fn campanile(data_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campanile"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CAMPANILE_") {
            command.env_remove(name);
        }
    }
    command.env("CAMPANILE_DATA_DIR", data_dir).env("CAMPANILE_AUTH__ADMIN_KEY", KEY);
    // Tests try many wrong keys from one address.
    for limit in ["PER_ADDRESS", "WRONG_KEYS"] {
        command.env(format!("CAMPANILE_SERVER__RATE_LIMITS__{limit}"), "0");
    }
    // Wide enough for one line per row in every table.
    command.env("COLUMNS", "240");
    for channel in ["EMAIL", "PUSH", "SMS", "SLACK"] {
        command.env(format!("CAMPANILE_SEND__{channel}__POLL_INTERVAL"), "50ms");
        command.env(format!("CAMPANILE_SEND__{channel}__BACKOFF_BASE"), "10ms");
    }
    command
}
