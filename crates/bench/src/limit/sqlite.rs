//! The cycle on SQLite: one thread, one transaction per statement of a thousand rows, with the engine's durability.

use std::time::Instant;

use anyhow::Result;
use rusqlite::{Connection, Statement};
use serde_json::json;
use uuid::Uuid;

use super::{BATCH, Rate, WINDOW, rate};

/// The columns and keys of the engine's tables, and a status with an index for finding remaining work.
const TABLES: &str = "
    PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE outbox (
        notification_id TEXT NOT NULL, channel TEXT NOT NULL, event_id TEXT NOT NULL, recipient_type TEXT NOT NULL,
        recipient_id TEXT NOT NULL, recipient_address TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
            priority TEXT NOT NULL,
        audience TEXT NOT NULL, entity_type TEXT, entity_id TEXT, shared_read INTEGER NOT NULL, queue TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'PENDING', retry_count INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL,
        PRIMARY KEY (notification_id, channel)) WITHOUT ROWID;
    CREATE UNIQUE INDEX outbox_recipient ON outbox (event_id, recipient_type, recipient_id, channel);
    CREATE INDEX outbox_pending ON outbox (created_at) WHERE status = 'PENDING';
    CREATE TABLE notification (
        id TEXT PRIMARY KEY, event_id TEXT NOT NULL, event_type TEXT NOT NULL, user_type TEXT NOT NULL,
            user_id TEXT NOT NULL,
        entity_type TEXT, entity_id TEXT, title TEXT NOT NULL, body TEXT NOT NULL, properties TEXT NOT NULL,
            priority TEXT NOT NULL,
        shared_read INTEGER NOT NULL, read_at TEXT, archived_at TEXT, created_at TEXT NOT NULL) WITHOUT ROWID;
    CREATE UNIQUE INDEX notification_recipient ON notification (event_id, user_type, user_id);
    CREATE TABLE send (
        notification_id TEXT NOT NULL, channel TEXT NOT NULL, recipient_address TEXT NOT NULL,
            status TEXT NOT NULL DEFAULT 'SENDING',
        attempt_count INTEGER NOT NULL DEFAULT 0, lease INTEGER, provider TEXT, sent_at TEXT, created_at TEXT NOT NULL,
        PRIMARY KEY (notification_id, channel)) WITHOUT ROWID;
    CREATE INDEX send_open ON send (created_at) WHERE status = 'SENDING'";

const INSERT_OUTBOX: &str = "
    INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address,
        title, body, priority,
                        audience, entity_type, entity_id, shared_read, queue, created_at)
    VALUES (?1, 'EMAIL', ?2, 'RESTAURANT_USER', ?3, ?4, ?5, ?6, 'NORMAL', 'restaurant', 'RESTAURANT', 'r123', 1,
            'notification.restaurant', ?7)";
const MARK_PUBLISHED: &str =
    "UPDATE outbox SET status = 'PUBLISHED' WHERE notification_id = ?1 AND channel = 'EMAIL'";
const INSERT_NOTIFICATION: &str = "
    INSERT INTO notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body,
        properties, priority,
                              shared_read, created_at)
    VALUES (?1, ?2, 'ORDER_CREATED', 'RESTAURANT_USER', ?3, 'RESTAURANT', 'r123', ?4, ?5, ?6, 'NORMAL', 1, ?7)";
const INSERT_SEND: &str = "
    INSERT INTO send (notification_id, channel, recipient_address, lease, created_at) VALUES (?1, 'EMAIL', ?2, 1, ?3)";
const MARK_SENT: &str = "
    UPDATE send SET status = 'SENT', attempt_count = 1, lease = NULL, provider = 'capture', sent_at = ?2
    WHERE notification_id = ?1 AND channel = 'EMAIL'";

pub async fn sqlite_cycle() -> Result<Rate> {
    tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir()?;
        let mut connection = Connection::open(folder.path().join("limit.db"))?;
        connection.execute_batch(TABLES)?;
        let (begun, mut steps) = (Instant::now(), 0usize);
        while begun.elapsed() < WINDOW {
            step(&mut connection, steps)?;
            steps += 1;
        }
        Ok(rate(steps, begun.elapsed()))
    })
    .await?
}

/// The parameters of one notification's statements.
struct Texts {
    id: String,
    event: String,
    user: String,
    address: String,
    title: String,
    properties: String,
}

impl Texts {
    fn of(number: usize) -> Self {
        let order =
            json!({"number": number, "guest": "Giulia Rossi", "dishes": 4, "at": "19:30", "table": 12});
        let properties = json!({"audience": "restaurant", "aggregate_type": "RESTAURANT", "aggregate_id": "r123",
            "payload": order});
        Texts {
            id: Uuid::now_v7().to_string(),
            event: format!("order-{number}"),
            user: format!("staff-{}", number % 3_000),
            address: format!("person{}@example.com", number % 3_000),
            title: format!("Order {number}"),
            properties: properties.to_string(),
        }
    }
}

fn step(connection: &mut Connection, step: usize) -> Result<()> {
    const BODY: &str = "Giulia Rossi ordered 4 dishes, to be served at 19:30.";
    let rows: Vec<Texts> = (0..BATCH).map(|row| Texts::of(step * BATCH + row)).collect();
    let now: String =
        connection.query_row("SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')", (), |row| row.get(0))?;
    each(connection, INSERT_OUTBOX, &rows, |statement, n| {
        statement.execute((&n.id, &n.event, &n.user, &n.address, &n.title, BODY, &now))
    })?;
    each(connection, MARK_PUBLISHED, &rows, |statement, n| statement.execute((&n.id,)))?;
    each(connection, INSERT_NOTIFICATION, &rows, |statement, n| {
        statement.execute((&n.id, &n.event, &n.user, &n.title, BODY, &n.properties, &now))
    })?;
    each(connection, INSERT_SEND, &rows, |statement, n| statement.execute((&n.id, &n.address, &now)))?;
    each(connection, MARK_SENT, &rows, |statement, n| statement.execute((&n.id, &now)))
}

/// Runs a statement for each row, in one transaction.
fn each(
    connection: &mut Connection,
    sql: &str,
    rows: &[Texts],
    execute: impl Fn(&mut Statement, &Texts) -> rusqlite::Result<usize>,
) -> Result<()> {
    let transaction = connection.transaction()?;
    let mut statement = transaction.prepare_cached(sql)?;
    for row in rows {
        execute(&mut statement, row)?;
    }
    drop(statement);
    Ok(transaction.commit()?)
}
