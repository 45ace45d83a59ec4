//! Creates a separate database for each test. It also gives tests a second connection, like that of another process,
//! and a clock that can be moved.
//!
//! `CAMPANILE_TEST_DATABASE_URL` names the server. The tables are created once, in a template. Each test's database is
//! a copy of the template, and is dropped at the end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::{Client, Config, NoTls};

use super::{Postgres, PostgresConfig};
use crate::conformance::TestDatabase;

pub const VARIABLE: &str = "CAMPANILE_TEST_DATABASE_URL";

/// A database that is dropped together with this value.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    name: String,
    server: String,
    offset: Mutex<Duration>,
}

impl Database {
    /// Creates a database with only the tables of this release.
    pub async fn new() -> Self {
        let server = server();
        let admin = connect(&server).await;
        let template = template(&server, &admin).await;
        Self::make(&server, &admin, &format!("TEMPLATE {template}")).await
    }

    /// Creates a database without any table.
    pub async fn empty() -> Self {
        let server = server();
        let admin = connect(&server).await;
        Self::make(&server, &admin, "").await
    }

    async fn make(server: &str, admin: &Client, from: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("campanile_test_{}_{number}", std::process::id());
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await.expect("it may");
        admin.batch_execute(&format!("CREATE DATABASE {name} {from}")).await.expect("there is room");
        Database {
            url: with_database(server, &name),
            name,
            server: server.to_owned(),
            offset: Mutex::default(),
        }
    }

    pub fn config(&self) -> PostgresConfig {
        PostgresConfig { url: self.url.clone(), direct_url: String::new(), ca_file: None, max_connections: 8 }
    }

    pub async fn open(&self) -> Postgres {
        Postgres::open(&self.config()).await.expect("the database is there")
    }

    /// Connects as another process would. Table names need no schema.
    pub async fn connect(&self) -> Client {
        let client = connect(&self.url).await;
        client.batch_execute("SET search_path = campanile").await.expect("the schema is there");
        client
    }

    /// Ends every connection and refuses new ones, until the database is opened again.
    pub async fn close(&self) {
        let admin = connect(&self.server).await;
        let name = &self.name;
        let forbid = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
        admin.batch_execute(&forbid).await.expect("it may");
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        admin.batch_execute(&end).await.expect("it may");
    }

    pub async fn reopen(&self) {
        let admin = connect(&self.server).await;
        let allow = format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.name);
        admin.batch_execute(&allow).await.expect("it may");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // Uses its own runtime: the runtime of the test may be gone, or must not be blocked.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("there are threads").block_on(async {
                let admin = connect(&server).await;
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                admin.batch_execute(&drop).await.expect("nobody needs it any more");
            });
        });
        drop(dropped.join());
    }
}

/// Creates the template if it does not exist yet. Its name changes with the migrations.
async fn template(server: &str, admin: &Client) -> String {
    let name = format!("campanile_template_{:x}", super::migrate::fingerprint());
    let lock = "SELECT pg_advisory_lock(hashtextextended('campanile.test.template', 0))";
    admin.batch_execute(lock).await.expect("the lock is let go with its connection");
    let found =
        admin.query("SELECT FROM pg_database WHERE datname = $1", &[&name]).await.expect("it can be asked");
    if found.is_empty() {
        let incomplete = format!("{name}_incomplete");
        admin
            .batch_execute(&format!("DROP DATABASE IF EXISTS {incomplete} WITH (FORCE)"))
            .await
            .expect("nobody needs it");
        admin.batch_execute(&format!("CREATE DATABASE {incomplete}")).await.expect("there is room");
        let url = with_database(server, &incomplete);
        let config = PostgresConfig { url, direct_url: String::new(), ca_file: None, max_connections: 1 };
        Postgres::migrate(&config).await.expect("the migrations are good");
        // The server closes the migration's connections some time later.
        let disconnect =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{incomplete}'");
        admin.batch_execute(&disconnect).await.expect("it may");
        let rename = format!("ALTER DATABASE {incomplete} RENAME TO {name}");
        while let Err(error) = admin.batch_execute(&rename).await {
            assert!(error.to_string().contains("accessed"), "{error}");
            tokio::task::yield_now().await;
        }
    }
    admin.batch_execute("SELECT pg_advisory_unlock_all()").await.expect("it was locked");
    name
}

fn server() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: run `cargo xtask test`, which brings up a PostgreSQL, or name one yourself")
    })
}

fn with_database(server: &str, name: &str) -> String {
    let (server, query) =
        server.split_once('?').map_or((server, String::new()), |(s, q)| (s, format!("?{q}")));
    let (host, _) = server.rsplit_once('/').expect("the URL names a database");
    format!("{host}/{name}{query}")
}

async fn connect(url: &str) -> Client {
    let config: Config = url.parse().expect("the URL is good");
    let (client, connection) = config.connect(NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    client
}

#[async_trait]
impl TestDatabase for Database {
    /// Moves the clock for all statements, because they all call the same function for the time.
    async fn advance(&self, by: Duration) {
        let offset = {
            let mut offset = self.offset.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *offset += by;
            offset.as_secs_f64()
        };
        let clock = format!(
            "CREATE OR REPLACE FUNCTION campanile.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS
             'SELECT pg_catalog.now() + make_interval(secs => {offset})'"
        );
        self.connect().await.batch_execute(&clock).await.expect("the function is ours");
    }

    async fn execute(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.expect("the statement is good");
    }

    async fn count(&self, sql: &str) -> i64 {
        self.connect().await.query_one(sql, &[]).await.expect("the query is good").get(0)
    }
}
