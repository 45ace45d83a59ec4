//! The PostgreSQL back end: any number of engines use one database. A claim locks its rows and skips rows that other
//! claims hold. Batches are passed as arrays. Statements that do not depend on one another are sent together.

mod api_key;
mod audience;
mod audit;
mod claim_watermark;
mod columns;
mod commit;
mod connect;
mod context;
mod dead_letter;
mod event;
mod examine;
mod fan_out;
mod idempotency;
mod instance;
mod listen;
mod migrate;
mod named_lease;
mod outbox;
mod queue_age;
mod read;
mod retain;
mod row;
mod send;
mod send_admin;
mod settle;
mod signing_key;
mod statement;
#[cfg(feature = "conformance")]
pub mod test_database;
mod trace;
mod transaction;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time::Timestamp;
use deadpool_postgres::{Object, Pool, PoolError, Runtime, TimeoutType};
use tokio::sync::broadcast::Receiver;
use tokio::sync::watch;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::columns::bad;
use crate::error::explained;
use crate::{Signal, Store, StoreError, identity};
use claim_watermark::ClaimWatermark;
use connect::Server;
use listen::Listener;
use transaction::Transaction;

/// The time to wait for a free connection of the pool.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);

/// The parameters of a statement.
type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How to reach the database.
#[derive(Clone)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:5432/database`, with `sslmode` and `sslrootcert` as libpq knows them.
    pub url: String,
    /// The URL for tasks that need their own session: migrations and notifications. Empty if `url` is suitable for them
    /// as well.
    pub direct_url: String,
    /// A file of certificate authorities for the server's certificate, in addition to those that the operating system
    /// trusts.
    pub ca_file: Option<PathBuf>,
    pub max_connections: usize,
}

/// How long producers suppress notifications after each request.
const SUPPRESS_PERIOD: Duration = Duration::from_secs(1);
/// With a smaller connection pool, no connection is used for suppressing notifications.
const MIN_CONNECTIONS_TO_SUPPRESS: usize = 8;

impl PostgresConfig {
    /// Checks what can be checked without connecting: the URLs and the file of authorities.
    pub fn check(&self) -> Result<(), StoreError> {
        server(self)?;
        direct_server(self).map(drop)
    }
}

/// Hides the URLs, because they hold passwords.
impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("ca_file", &self.ca_file)
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

/// Cloning makes another handle to the same pool.
#[derive(Debug, Clone)]
pub struct Postgres {
    pool: Pool,
    listener: Arc<Listener>,
    watermark: Arc<ClaimWatermark>,
}

impl Postgres {
    /// Connects, and creates or upgrades the tables.
    pub async fn open(config: &PostgresConfig) -> Result<Self, StoreError> {
        migrate::run(config).await?;
        let server = server(config)?;
        let pool = Pool::builder(server.manager())
            .max_size(config.max_connections)
            .wait_timeout(Some(POOL_TIMEOUT))
            .create_timeout(Some(POOL_TIMEOUT))
            .runtime(Runtime::Tokio1)
            .post_create(connect::prepare_session())
            .build()
            .map_err(|e| {
                StoreError::Unusable(explained(format!("can't create the connection pool: {e}"), e))
            })?;
        let listener = Arc::new(Listener::start(direct_server(config)?));
        let store = Postgres { pool, listener, watermark: Arc::default() };
        store.check_recipients().await?;
        Ok(store)
    }

    /// Creates or upgrades the tables, and returns the names of the applied migrations.
    pub async fn migrate(config: &PostgresConfig) -> Result<Vec<String>, StoreError> {
        migrate::run(config).await
    }

    /// Host, port and database, to show to users; never the password.
    pub fn location(config: &PostgresConfig) -> Result<String, StoreError> {
        server(config).map(|server| server.name())
    }

    async fn client(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => StoreError::Unavailable(
                format!("all {} connections were busy for {POOL_TIMEOUT:?}", self.pool.status().max_size)
                    .into(),
            ),
            PoolError::Timeout(_) => {
                StoreError::Unavailable(format!("no connection within {POOL_TIMEOUT:?}").into())
            }
            PoolError::Backend(error) => connect::error(error),
            other => StoreError::Unavailable(other.into()),
        })
    }

    async fn begin(&self) -> Result<Transaction, StoreError> {
        Ok(Transaction::begin(self.client().await?))
    }

    /// Begins a read-only transaction whose statements see the same state.
    async fn snapshot(&self) -> Result<Transaction, StoreError> {
        Ok(Transaction::begin_snapshot(self.client().await?))
    }

    /// Runs a statement as its own transaction.
    async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        query(&client, sql, params).await
    }

    async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, StoreError> {
        let client = self.client().await?;
        execute(&client, sql, params).await
    }
}

#[async_trait]
impl Store for Postgres {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        let rows = self.query(statement::NOW, &[]).await?;
        read::only_row(&rows)?.try_get(0).map_err(|e| bad("now", e))
    }

    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn identity(&self) -> Result<String, StoreError> {
        let rows = self.query(statement::DATABASE_IDENTITY, &[]).await?;
        let row = read::only_row(&rows)?;
        Ok(identity(&[read::get(row, "applied_on")?, read::get(row, "database")?]))
    }

    async fn notify(&self, signal: Signal) -> Result<(), StoreError> {
        self.execute(statement::NOTIFY, &[&listen::payload(signal)]).await.map(drop)
    }

    /// The lock belongs to a transaction and not to a connection, because the connection may be a pooler's. The
    /// transaction reads and writes nothing, so it blocks no others. It is short, because some servers end idle
    /// transactions.
    async fn suppress_notify(&self, mut requested: watch::Receiver<bool>) -> Result<(), StoreError> {
        let no_longer_requested = requested.wait_for(|requested| !*requested);
        let no_longer_requested = tokio::time::timeout(SUPPRESS_PERIOD, no_longer_requested);
        if self.pool.status().max_size < MIN_CONNECTIONS_TO_SUPPRESS {
            no_longer_requested.await.ok();
            return Ok(());
        }
        let transaction = self.begin().await?;
        // If another instance holds the lock, that has the same effect. The statement is not prepared, because a
        // prepared one would keep its snapshot until the end and prevent vacuum.
        transaction.batch_execute(statement::LOCK_SUPPRESS_NOTIFY).await?;
        no_longer_requested.await.ok();
        transaction.commit().await
    }

    fn subscribe(&self) -> Option<Receiver<Signal>> {
        Some(self.listener.subscribe())
    }
}

fn server(config: &PostgresConfig) -> Result<Server, StoreError> {
    Server::new("database.url", &config.url, config.ca_file.as_deref())
}

fn direct_server(config: &PostgresConfig) -> Result<Server, StoreError> {
    if config.direct_url.is_empty() {
        return server(config);
    }
    Server::new("database.direct_url", &config.direct_url, config.ca_file.as_deref())
}

async fn query(client: &Object, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
    let statement = client.prepare_cached(sql).await?;
    query_prepared(client, &statement, params).await
}

async fn execute(client: &Object, sql: &str, params: Params<'_>) -> Result<u64, StoreError> {
    let statement = client.prepare_cached(sql).await?;
    execute_prepared(client, &statement, params).await
}

async fn query_prepared(
    client: &Object,
    statement: &Statement,
    params: Params<'_>,
) -> Result<Vec<Row>, StoreError> {
    client.query(statement, params).await.map_err(|error| failed(client, error))
}

async fn execute_prepared(
    client: &Object,
    statement: &Statement,
    params: Params<'_>,
) -> Result<u64, StoreError> {
    client.execute(statement, params).await.map_err(|error| failed(client, error))
}

/// Translates an error. If the connection's prepared statements are stale, it discards them all, because otherwise they
/// would fail again and again.
fn failed(client: &Object, error: tokio_postgres::Error) -> StoreError {
    if connect::is_stale(&error) {
        client.statement_cache.clear();
    }
    connect::error(error)
}

/// Prepares statements that are sent together. A statement that is prepared only when it is executed would be sent
/// after the statements that follow it. The futures are joined `biased`, so that the first error is that of the first
/// statement.
async fn prepare<const N: usize>(client: &Object, sql: [&str; N]) -> Result<[Statement; N], StoreError> {
    let mut statements = Vec::with_capacity(N);
    for sql in sql {
        statements.push(client.prepare_cached(sql).await?);
    }
    Ok(statements.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for")))
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        connect::error(error)
    }
}

#[cfg(test)]
mod tests;
