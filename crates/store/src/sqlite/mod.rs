//! SQLite: one file, one engine. One thread writes, and commits the work of many callers together. Readers have their
//! own connections and never wait for the writer.

mod api_key;
mod audience;
mod audit;
mod claimed_events;
mod columns;
mod context;
mod dead_letter;
mod event;
mod examine;
mod fan_out;
mod idempotency;
mod instance;
pub mod lock;
mod named_lease;
mod outbox;
mod queue_age;
mod read;
mod retain;
mod row;
mod send;
mod send_admin;
mod session;
mod settle;
mod signing_key;
mod statement;
#[cfg(feature = "conformance")]
pub mod test_database;
mod trace;
mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::time::{self, Timestamp};
use refinery::Migration;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};
use tokio::sync::Semaphore;

use crate::error::{Source, explained};
use crate::{Store, StoreError, identity};
use claimed_events::ClaimedEvents;
use lock::EngineLock;
use session::Session;
use writer::Writer;

const READERS: usize = 4;
/// The time to wait for a producer in another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const STATEMENT_CACHE: usize = 128;

/// Cloning makes another handle to the same file.
///
/// No statistics are gathered (`ANALYZE`, `PRAGMA optimize`). Without statistics, SQLite assumes that every table is
/// large and uses its indexes. With statistics of a young file it would scan whole tables, even after they have grown.
#[derive(Debug, Clone)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    clock: Clock,
    claimed_events: ClaimedEvents,
    _lock: EngineLock,
}

/// The clock of the database. It is the clock of the process, because SQLite has none. Tests move it instead of
/// waiting.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Mutex<Duration>>);

impl Clock {
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += by;
    }

    fn now(&self) -> Timestamp {
        let offset = *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        time::later(Timestamp::now(), offset)
    }
}

impl Sqlite {
    /// Opens the file, creates or upgrades its tables, and takes over the leases of an earlier process.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_clock(path, Clock::default())
    }

    pub fn open_with_clock(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let lock = lock::take(path)?;
        let mut connection = connect(path, OpenFlags::default()).map_err(|e| cannot_open(path, e))?;
        migrate(&mut connection).map_err(|e| cannot_open(path, e))?;
        // This process holds the lock, so the previous holder of these leases no longer runs.
        connection.execute(statement::EXPIRE_LEASES, [])?;
        connection.execute(statement::RELEASE_CHUNKS, [])?;
        connection.execute(statement::RELEASE_LEASES, [])?;
        let readers = (0..READERS)
            .map(|_| connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX))
            .collect::<Result<Vec<_>, _>>()?;
        let shared = Shared {
            writer: Writer::start(connection)?,
            readers: Mutex::new(readers),
            permits: Arc::new(Semaphore::new(READERS)),
            clock,
            claimed_events: ClaimedEvents::default(),
            _lock: lock,
        };
        Ok(Sqlite { shared: Arc::new(shared) })
    }

    fn clock(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Runs `work` as one transaction on the writing thread, with the time of the database.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let clock = self.shared.clock.clone();
        self.shared.writer.run(move |session| work(session, &time::to_text(clock.now()))).await
    }

    /// Runs `work` as one transaction on a reading connection, on a blocking thread. If the caller is cancelled, the
    /// work continues. Its permit stays with the connection, so that a permit always means a free connection.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Session) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let permit = Arc::clone(&self.shared.permits).acquire_owned().await.map_err(|_| closed())?;
        let read = tokio::task::spawn_blocking(move || {
            let pool = || shared.readers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let connection = pool().pop().ok_or_else(closed)?;
            // A panic is a bug in one caller's work and must not cost the connection. A retry would panic again, so it
            // is refused.
            let result = catch_unwind(AssertUnwindSafe(|| in_snapshot(&connection, work)))
                .unwrap_or_else(|_| Err(StoreError::Refused("a read panicked".into())));
            pool().push(connection);
            drop(permit);
            result
        });
        read.await.map_err(|e| StoreError::Unavailable(explained(format!("a read task failed: {e}"), e)))?
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock())
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn identity(&self) -> Result<String, StoreError> {
        let made_at = |row: &Row| Ok(row.get::<_, String>(0)?);
        let made_at =
            self.read(move |session| session.first(statement::DATABASE_IDENTITY, &[], made_at)).await?;
        Ok(identity(&[&made_at.unwrap_or_default()]))
    }
}

/// Runs `work` in a transaction, so that its statements see the same state.
fn in_snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Session) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let result = work(&Session::new(&transaction))?;
    transaction.finish()?;
    Ok(result)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Without this setting, SQLite plans a statement again whenever its values change, if the plan might depend on
    // them. That took a tenth of the engine's time (decision 0024).
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if !flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY) {
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    }
    connection
        .execute_batch("PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;")?;
    Ok(connection)
}

/// Every migration, in order. From the first published version on, a migration is never edited, and later ones only add
/// (decision 0015). So a file that a newer release has upgraded can still be opened.
fn migrations() -> Result<Vec<Migration>, refinery::Error> {
    [("V1__first_tables", include_str!("migrations/V1__first_tables.sql"))]
        .into_iter()
        .map(|(name, sql)| Migration::unapplied(name, sql))
        .collect()
}

fn migrate(connection: &mut Connection) -> Result<(), refinery::Error> {
    refinery::Runner::new(&migrations()?).set_abort_missing(false).run(connection).map(drop)
}

fn cannot_open(path: &Path, error: impl Into<Source>) -> StoreError {
    let error = error.into();
    let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    let text = format!("the database {} can't be used: {error}{cause}", path.display());
    StoreError::Unusable(explained(text, error))
}

fn closed() -> StoreError {
    StoreError::Unavailable("the database is closed".into())
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                StoreError::Refused(error.into())
            }
            Some(_) => StoreError::Unavailable(error.into()),
            None => StoreError::Refused(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
