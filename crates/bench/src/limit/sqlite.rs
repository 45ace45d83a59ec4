//! The cycle on SQLite: one thread, a transaction for each statement of a thousand rows, as durable as the engine's.

use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::Connection;
use uuid::Uuid;

use super::{BATCH, Rate, rate};

const TABLES: &str = "
    PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE outbox (
        id TEXT PRIMARY KEY, event_id TEXT NOT NULL, recipient_type TEXT NOT NULL, recipient_id TEXT NOT NULL, channel TEXT NOT NULL,
        address TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL, priority TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'PENDING', created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
        UNIQUE (event_id, recipient_type, recipient_id, channel)) WITHOUT ROWID;
    CREATE INDEX outbox_pending ON outbox (created_at) WHERE status = 'PENDING';
    CREATE TABLE notification (
        id TEXT PRIMARY KEY, event_id TEXT NOT NULL, user_type TEXT NOT NULL, user_id TEXT NOT NULL, title TEXT NOT NULL,
        body TEXT NOT NULL, read_at TEXT, created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
        UNIQUE (event_id, user_type, user_id)) WITHOUT ROWID;
    CREATE TABLE send (
        notification_id TEXT NOT NULL, channel TEXT NOT NULL, address TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'SENDING',
        attempt_count INTEGER NOT NULL DEFAULT 0, sent_at TEXT,
        created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
        PRIMARY KEY (notification_id, channel)) WITHOUT ROWID;
    CREATE INDEX send_open ON send (created_at) WHERE status <> 'SENT'";

pub async fn sqlite_cycle(length: Duration) -> Result<Rate> {
    tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir()?;
        let mut connection = Connection::open(folder.path().join("limit.db"))?;
        connection.execute_batch(TABLES)?;
        let (begun, mut steps) = (Instant::now(), 0usize);
        while begun.elapsed() < length {
            step(&mut connection, steps)?;
            steps += 1;
        }
        Ok(rate(steps, begun.elapsed()))
    })
    .await?
}

fn step(connection: &mut Connection, step: usize) -> Result<()> {
    let rows: Vec<(String, String, String)> = (0..BATCH)
        .map(|row| {
            let n = step * BATCH + row;
            (Uuid::now_v7().to_string(), format!("order-{n}"), format!("staff-{}", n % 3_000))
        })
        .collect();
    let each = |connection: &mut Connection,
                sql: &str,
                of: fn(&(String, String, String)) -> Vec<&String>|
     -> Result<()> {
        let transaction = connection.transaction()?;
        let mut statement = transaction.prepare_cached(sql)?;
        for row in &rows {
            statement.execute(rusqlite::params_from_iter(of(row)))?;
        }
        drop(statement);
        Ok(transaction.commit()?)
    };
    each(
        connection,
        "INSERT INTO outbox (id, event_id, recipient_type, recipient_id, channel, address, title, body, priority)
         VALUES (?1, ?2, 'RESTAURANT_USER', ?3, 'EMAIL', ?3 || '@example.com', 'Order ' || ?2,
                 'Giulia Rossi ordered 4 dishes, to be served at 19:30.', 'NORMAL')",
        |(id, event, user)| vec![id, event, user],
    )?;
    each(connection, "UPDATE outbox SET status = 'PUBLISHED' WHERE id = ?1", |(id, _, _)| vec![id])?;
    each(
        connection,
        "INSERT INTO notification (id, event_id, user_type, user_id, title, body)
         VALUES (?1, ?2, 'RESTAURANT_USER', ?3, 'Order ' || ?2, 'Giulia Rossi ordered 4 dishes, to be served at 19:30.')",
        |(id, event, user)| vec![id, event, user],
    )?;
    each(
        connection,
        "INSERT INTO send (notification_id, channel, address) VALUES (?1, 'EMAIL', ?2 || '@example.com')",
        |(id, _, user)| vec![id, user],
    )?;
    each(
        connection,
        "UPDATE send SET status = 'SENT', attempt_count = 1, sent_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
         WHERE notification_id = ?1 AND channel = 'EMAIL'",
        |(id, _, _)| vec![id],
    )
}
