//! Faults of PostgreSQL, and what other users do in it.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Fault, hold};
use crate::database::{Database, connect};
use crate::random::Random;
use crate::world::World;

/// The name of a session that reads for minutes, and that no fault ends.
const READER: &str = "torture-reader";

pub async fn happen(fault: Fault, world: &World, random: &mut Random) -> Result<()> {
    let Database::Postgres { url } = &world.database else { bail!("this world has no PostgreSQL") };
    match fault {
        Fault::EndDatabaseSessions => end_sessions(url).await,
        Fault::RestartDatabaseFast => world.servers.pg_ctl(&["restart", "-m", "fast"]).await,
        Fault::RestartDatabaseImmediately => world.servers.pg_ctl(&["restart", "-m", "immediate"]).await,
        Fault::RefuseDatabaseConnections => refuse_connections(world, url, random).await,
        Fault::LockOfAStranger => lock_a_table(url, random).await,
        Fault::OldSnapshot => old_snapshot(url, random).await,
        _ => bail!("{} is not a fault of PostgreSQL", fault.name()),
    }
}

async fn end_sessions(url: &str) -> Result<()> {
    let ended = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> '{READER}'"
    );
    Ok(connect(url).await?.batch_execute(&ended).await?)
}

async fn refuse_connections(world: &World, url: &str, random: &mut Random) -> Result<()> {
    let name = url.rsplit('/').next().context("the URL names a database")?;
    let server = world.servers.database_url.as_deref().context("there is a server")?;
    let client = connect(server).await?;
    client.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await?;
    let ended = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    client.batch_execute(&ended).await?;
    hold(random, 500, 4_000).await;
    Ok(client.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await?)
}

/// Locks a table like a foreign migration or a `VACUUM FULL`.
async fn lock_a_table(url: &str, random: &mut Random) -> Result<()> {
    const TABLES: [&str; 8] = [
        "event_outbox",
        "processed_event",
        "outbox",
        "publish_chunk",
        "notification",
        "send",
        "send_claim",
        "send_due",
    ];
    let table = random.pick(&TABLES).context("there are tables")?;
    let client = connect(url).await?;
    client.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await?;
    // Sometimes longer than the engine waits for a lock.
    let (least, most) = if random.percent(10) { (21_000, 23_000) } else { (500, 5_000) };
    hold(random, least, most).await;
    Ok(client.batch_execute("ROLLBACK").await?)
}

/// Keeps a snapshot open for minutes, so that dead rows cannot be vacuumed. Other faults may happen meanwhile.
async fn old_snapshot(url: &str, random: &mut Random) -> Result<()> {
    let client = connect(url).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM event_outbox";
    client.batch_execute(&format!("SET application_name TO '{READER}'; {begin}")).await?;
    let length = Duration::from_secs(random.between(60, 180));
    tokio::spawn(async move {
        tokio::time::sleep(length).await;
        drop(client);
    });
    Ok(())
}
