//! The database as users see it: SQL, on a connection that the network faults do not affect.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rusqlite::OpenFlags;
use rusqlite::types::ValueRef;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long a producer waits for the file while the engine writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time for a query; the server may be frozen on purpose.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub enum Database {
    Postgres { url: String },
    Sqlite { file: PathBuf },
}

/// A row, each column as text; NULL is empty.
pub type Row = Vec<String>;

/// What a producer knows about its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Committed,
    RolledBack,
    /// The answer to COMMIT was lost.
    Unknown,
}

impl Database {
    /// Queries without parameters, which both databases understand.
    pub async fn rows(&self, sql: &str) -> Result<Vec<Row>> {
        let asked = async {
            match self {
                Database::Postgres { url } => {
                    let client = connect(url).await?;
                    let messages = client.simple_query(sql).await.with_context(|| sql.to_owned())?;
                    Ok(messages.iter().filter_map(text_row).collect())
                }
                Database::Sqlite { file } => {
                    let (file, sql) = (file.clone(), sql.to_owned());
                    tokio::task::spawn_blocking(move || sqlite_rows(&file, &sql)).await?
                }
            }
        };
        tokio::time::timeout(QUERY_TIMEOUT, asked)
            .await
            .with_context(|| format!("no answer within {QUERY_TIMEOUT:?}: {sql}"))?
    }

    /// The first column of the only row, as a number.
    pub async fn number(&self, sql: &str) -> Result<u64> {
        let rows = self.rows(sql).await?;
        let first = rows.first().and_then(|row| row.first()).with_context(|| format!("no row: {sql}"))?;
        first.parse().with_context(|| format!("`{first}` is no number: {sql}"))
    }

    /// One transaction of a business service.
    pub async fn transaction(&self, statements: &str, commit: bool) -> Ended {
        match self {
            Database::Postgres { url } => postgres_transaction(url, statements, commit).await,
            Database::Sqlite { file } => {
                let (file, statements) = (file.clone(), statements.to_owned());
                let done =
                    tokio::task::spawn_blocking(move || sqlite_transaction(&file, &statements, commit));
                done.await.unwrap_or(Ended::Unknown)
            }
        }
    }
}

/// A connection on which Campanile's tables need no schema, as on SQLite.
pub async fn connect(url: &str) -> Result<Client> {
    let connecting = tokio::time::timeout(QUERY_TIMEOUT, tokio_postgres::connect(url, NoTls));
    let (client, connection) =
        connecting.await.context("PostgreSQL does not answer")?.context("no PostgreSQL")?;
    tokio::spawn(connection);
    client.batch_execute("SET search_path TO campanile, public; SET application_name TO 'torture'").await?;
    Ok(client)
}

async fn postgres_transaction(url: &str, statements: &str, commit: bool) -> Ended {
    let Ok(client) = connect(url).await else { return Ended::RolledBack };
    if client.batch_execute(&format!("BEGIN; {statements}")).await.is_err() {
        return Ended::RolledBack;
    }
    let end = if commit { "COMMIT" } else { "ROLLBACK" };
    match (client.batch_execute(end).await, commit) {
        (_, false) => Ended::RolledBack,
        (Ok(()), true) => Ended::Committed,
        (Err(_), true) => Ended::Unknown,
    }
}

fn sqlite_transaction(file: &std::path::Path, statements: &str, commit: bool) -> Ended {
    // The engine creates a file that does not exist yet.
    let Ok(connection) = rusqlite::Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
    else {
        return Ended::RolledBack;
    };
    let begun = connection
        .busy_timeout(BUSY_TIMEOUT)
        .and_then(|()| connection.execute_batch("PRAGMA synchronous = FULL; BEGIN IMMEDIATE;"))
        .and_then(|()| connection.execute_batch(statements));
    if begun.is_err() {
        return Ended::RolledBack;
    }
    match (connection.execute_batch(if commit { "COMMIT" } else { "ROLLBACK" }), commit) {
        (_, false) => Ended::RolledBack,
        (Ok(()), true) => Ended::Committed,
        (Err(_), true) => Ended::Unknown,
    }
}

fn text_row(message: &SimpleQueryMessage) -> Option<Row> {
    match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    }
}

fn sqlite_rows(file: &std::path::Path, sql: &str) -> Result<Vec<Row>> {
    let connection = rusqlite::Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .with_context(|| format!("{} can't be opened", file.display()))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let mut found = Vec::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let mut texts = Vec::with_capacity(columns);
        for column in 0..columns {
            texts.push(match row.get_ref(column)? {
                ValueRef::Null => String::new(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                ValueRef::Real(_) | ValueRef::Blob(_) => bail!("neither text nor a number: {sql}"),
            });
        }
        found.push(texts);
    }
    Ok(found)
}
