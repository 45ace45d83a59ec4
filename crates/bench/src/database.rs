//! The database itself: SQL on a connection of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long to wait for the file while the engine writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub enum Database {
    Postgres { server_url: String, name: String },
    Sqlite { file: PathBuf },
}

impl Database {
    pub async fn create(&self) -> Result<()> {
        if let Database::Postgres { server_url, name } = self {
            let client = connect(server_url).await?;
            let made = client.batch_execute(&format!("CREATE DATABASE {name}")).await;
            made.context("no database can be made")?;
            // For people who want to look at statements. It works only if it is in `shared_preload_libraries`.
            self.run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.ok();
        }
        Ok(())
    }

    pub async fn remove(&self) -> Result<()> {
        if let Database::Postgres { server_url, name } = self {
            let client = connect(server_url).await?;
            client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
        Ok(())
    }

    /// The URL of the PostgreSQL database. Without TLS unless the server's URL says otherwise: on one machine it
    /// protects nothing.
    pub fn url(&self) -> String {
        match self {
            Database::Postgres { server_url, name } => {
                let url = with_database(server_url, name);
                if url.contains('?') { url } else { format!("{url}?sslmode=disable") }
            }
            Database::Sqlite { file } => format!("sqlite:{}", file.display()),
        }
    }

    /// A connection to PostgreSQL, on which Campanile's tables need no schema.
    pub async fn client(&self) -> Result<Client> {
        let client = connect(&self.url()).await?;
        client.batch_execute("SET search_path = campanile, public").await?;
        Ok(client)
    }

    /// Runs statements that both databases understand; `json(…)` makes JSON of a text in both.
    pub async fn run(&self, sql: &str) -> Result<()> {
        match self {
            Database::Postgres { .. } => {
                self.client().await?.batch_execute(sql).await.with_context(|| sql.to_owned())
            }
            Database::Sqlite { file } => {
                let (file, sql) = (file.clone(), sql.to_owned());
                tokio::task::spawn_blocking(move || {
                    let connection = rusqlite::Connection::open(file)?;
                    connection.busy_timeout(BUSY_TIMEOUT)?;
                    connection.execute_batch(&sql).with_context(|| sql.clone())
                })
                .await?
            }
        }
    }

    /// The first column of the only row.
    pub async fn number(&self, sql: &str) -> Result<f64> {
        let text = match self {
            Database::Postgres { .. } => {
                let rows = self.client().await?.simple_query(sql).await.with_context(|| sql.to_owned())?;
                rows.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
                    _ => None,
                })
            }
            Database::Sqlite { file } => {
                let (file, sql) = (file.clone(), sql.to_owned());
                let asked = tokio::task::spawn_blocking(move || {
                    let connection = rusqlite::Connection::open(file)?;
                    connection.busy_timeout(BUSY_TIMEOUT)?;
                    connection.query_row(&sql, [], |row| row.get::<_, f64>(0))
                });
                Some(asked.await??.to_string())
            }
        };
        let text = text.with_context(|| format!("no row: {sql}"))?;
        text.parse().with_context(|| format!("`{text}` is no number: {sql}"))
    }
}

pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("PostgreSQL can't be reached")?;
    tokio::spawn(connection);
    Ok(client)
}

/// The URL of another database on the same server.
fn with_database(url: &str, name: &str) -> String {
    let (place, options) =
        url.split_once('?').map_or((url, String::new()), |(place, rest)| (place, format!("?{rest}")));
    let begin = place.find("://").map_or(0, |at| at + 3);
    let end = place[begin..].find('/').map_or(place.len(), |at| begin + at);
    format!("{}/{name}{options}", &place[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_has_a_database_of_its_own() {
        assert_eq!(
            with_database("postgres://a:b@h:1/x?sslmode=disable", "y"),
            "postgres://a:b@h:1/y?sslmode=disable"
        );
        assert_eq!(with_database("postgres://h", "y"), "postgres://h/y");
    }
}
