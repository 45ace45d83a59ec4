//! Creates and upgrades the tables. Instances that start together wait for one another. A schema that is newer than
//! this release is left unchanged, because migrations only add.

use tokio_postgres::Client;

use super::connect::{self, Server};
use super::{PostgresConfig, direct_server};
use crate::StoreError;
use crate::error::{Source, explained};

const HISTORY: &str = "campanile.schema_history";
/// The first version of PostgreSQL that is tested.
pub(super) const OLDEST_SERVER: i32 = 150_000;

/// Every migration, in order. From the first published version on, a migration is never edited, and later ones only add
/// (decision 0015).
pub(super) const MIGRATIONS: [(&str, &str); 1] =
    [("V1__first_tables", include_str!("migrations/V1__first_tables.sql"))];

/// Applies the missing migrations and returns their names. It needs its own session, because the lock belongs to the
/// session.
pub async fn run(config: &PostgresConfig) -> Result<Vec<String>, StoreError> {
    let server = direct_server(config)?;
    let mut client = connect_to(&server).await?;
    check_server(&client, &server).await?;
    let pending = pending_migrations(&client).await?;
    if pending == 0 {
        return Ok(Vec::new());
    }
    let cannot = |error: Source| {
        let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        let text = format!(
            "can't create or upgrade the tables of {}: {error}{cause}; the user of database.direct_url (or \
             database.url) must own the schema campanile, or be allowed to create it: \
             run `campanile migrate` once as such a user",
            server.name()
        );
        StoreError::Unusable(explained(text, error))
    };
    let locked =
        "SET statement_timeout = 0; SELECT pg_advisory_lock(hashtextextended('campanile.migrate', 0))";
    client.batch_execute(locked).await.map_err(|e| cannot(e.into()))?;
    if !has_schema(&client).await? {
        client.batch_execute("CREATE SCHEMA campanile").await.map_err(|e| cannot(e.into()))?;
    }
    let migrations = migrations().map_err(|e| cannot(e.into()))?;
    let mut runner = refinery::Runner::new(&migrations).set_abort_missing(false);
    runner.set_migration_table_name(HISTORY);
    let report = runner.run_async(&mut client).await.map_err(|e| cannot(e.into()))?;
    Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
}

fn migrations() -> Result<Vec<refinery::Migration>, refinery::Error> {
    MIGRATIONS.iter().map(|(name, sql)| refinery::Migration::unapplied(name, sql)).collect()
}

/// The number of migrations that the schema lacks.
async fn pending_migrations(client: &Client) -> Result<usize, StoreError> {
    let known = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&HISTORY]).await?;
    if !known.get::<_, bool>(0) {
        return Ok(MIGRATIONS.len());
    }
    let applied = client.query_one(&format!("SELECT count(*) FROM {HISTORY}"), &[]).await?;
    Ok(MIGRATIONS.len().saturating_sub(usize::try_from(applied.get::<_, i64>(0)).unwrap_or_default()))
}

async fn has_schema(client: &Client) -> Result<bool, StoreError> {
    let found = client.query_one("SELECT to_regnamespace('campanile') IS NOT NULL", &[]).await?;
    Ok(found.get(0))
}

async fn check_server(client: &Client, server: &Server) -> Result<(), StoreError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
            current_setting('server_encoding')",
            &[],
        )
        .await?;
    let (number, version, encoding): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
    if number < OLDEST_SERVER {
        return Err(StoreError::Unusable(
            format!("{} runs PostgreSQL {version}; 15 or newer is needed", server.name()).into(),
        ));
    }
    if encoding != "UTF8" {
        return Err(StoreError::Unusable(
            format!(
                "the database {} has the encoding {encoding}; create one with ENCODING 'UTF8'",
                server.name()
            )
            .into(),
        ));
    }
    Ok(())
}

async fn connect_to(server: &Server) -> Result<Client, StoreError> {
    let cannot = |error: tokio_postgres::Error| {
        let error = connect::error(error);
        let text = match &error {
            StoreError::Unavailable(why) => format!(
                "the database {} can't be reached: {why}; check that it is running and that database.url is correct",
                server.name()
            ),
            other => format!("the database {} can't be used: {other}", server.name()),
        };
        StoreError::Unusable(explained(text, error))
    };
    let (client, connection) = server.config.connect(server.tls.clone()).await.map_err(cannot)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection for migrations ended");
        }
    });
    Ok(client)
}

/// A checksum of the migrations.
#[cfg(feature = "conformance")]
pub fn fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    MIGRATIONS.hash(&mut hasher);
    hasher.finish()
}
