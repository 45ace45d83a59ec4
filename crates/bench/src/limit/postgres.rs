//! The cycle on PostgreSQL, with each statement as a transaction, on one or more connections.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{BATCH, Rate, WINDOW, rate};
use crate::bench::Bench;
use crate::site::Site;

/// The columns and keys of the engine's tables.
const TABLES: &str = "
    CREATE TABLE outbox (
        notification_id uuid NOT NULL, channel text COLLATE \"C\" NOT NULL, event_id text COLLATE \"C\" NOT NULL,
        recipient_type text COLLATE \"C\" NOT NULL, recipient_id text COLLATE \"C\" NOT NULL,
            recipient_address text NOT NULL,
        title text NOT NULL, body text NOT NULL, priority text NOT NULL, audience text NOT NULL,
        entity_type text, entity_id text,
        shared_read boolean NOT NULL, queue text NOT NULL, status text NOT NULL DEFAULT 'PENDING',
        retry_count integer NOT NULL DEFAULT 0,
        created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (notification_id, channel),
        UNIQUE (event_id, recipient_type, recipient_id, channel));
    CREATE TABLE notification (
        id uuid PRIMARY KEY, event_id text COLLATE \"C\" NOT NULL, event_type text NOT NULL,
            user_type text COLLATE \"C\" NOT NULL,
        user_id text COLLATE \"C\" NOT NULL, entity_type text, entity_id text, title text NOT NULL, body text NOT NULL,
        properties json NOT NULL, priority text NOT NULL, shared_read boolean NOT NULL, read_at timestamptz,
            archived_at timestamptz,
        created_at timestamptz NOT NULL DEFAULT now(), UNIQUE (event_id, user_type, user_id));
    CREATE TABLE send (
        notification_id uuid NOT NULL, channel text COLLATE \"C\" NOT NULL, recipient_address text NOT NULL,
        status text NOT NULL DEFAULT 'SENDING', attempt_count integer NOT NULL DEFAULT 0, lease bigint, provider text,
        sent_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (notification_id, channel))
        WITH (fillfactor = 50)";
/// Indexes for finding remaining work by status; the engine has small tables for that.
const INDEXES: &str = "
    CREATE INDEX outbox_pending ON outbox (created_at) WHERE status = 'PENDING';
    CREATE INDEX send_open ON send (created_at) WHERE status = 'SENDING'";

const INSERT_OUTBOX: &str = "
    INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address,
        title, body, priority,
                        audience, entity_type, entity_id, shared_read, queue)
    SELECT id, 'EMAIL', event_id, 'RESTAURANT_USER', user_id, address, title, body, 'NORMAL', 'restaurant',
        'RESTAURANT', 'r123', true,
           'notification.restaurant'
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
         AS n (id, event_id, user_id, address, title, body)";
const MARK_PUBLISHED: &str =
    "UPDATE outbox SET status = 'PUBLISHED' WHERE notification_id = ANY ($1) AND channel = 'EMAIL'";
const INSERT_NOTIFICATION: &str = "
    INSERT INTO notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body,
        properties, priority,
                              shared_read)
    SELECT id, event_id, 'ORDER_CREATED', 'RESTAURANT_USER', user_id, 'RESTAURANT', 'r123', title, body,
        properties, 'NORMAL', true
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::json[])
         AS n (id, event_id, user_id, title, body, properties)";
const INSERT_SEND: &str = "
    INSERT INTO send (notification_id, channel, recipient_address, lease)
    SELECT id, 'EMAIL', address, 1 FROM unnest($1::uuid[], $2::text[]) AS n (id, address)";
const MARK_SENT: &str = "
    UPDATE send SET status = 'SENT', attempt_count = 1, lease = NULL, provider = 'capture', sent_at = now()
    WHERE notification_id = ANY ($1) AND channel = 'EMAIL'";

/// The whole cycle.
pub async fn cycle(bench: &Bench, connections: usize) -> Result<Rate> {
    measure(bench, connections, What::Cycle).await
}

/// The part of the cycle that the engine itself uses.
pub async fn lean_cycle(bench: &Bench) -> Result<Rate> {
    measure(bench, 1, What::Lean).await
}

/// The first insert alone, into a table with the engine's keys.
pub async fn inserts(bench: &Bench) -> Result<Rate> {
    measure(bench, 1, What::Inserts).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Cycle,
    Lean,
    Inserts,
}

async fn measure(bench: &Bench, connections: usize, what: What) -> Result<Rate> {
    let database = Site::database(bench).await?;
    let client = database.client().await?;
    client.batch_execute(TABLES).await?;
    if what == What::Cycle {
        client.batch_execute(INDEXES).await?;
    }
    let mut runs = JoinSet::new();
    for number in 0..connections {
        let statements = Statements::prepare(database.client().await?).await?;
        runs.spawn(statements.run(number, what));
    }
    let mut rate = 0.0;
    while let Some(of_one) = runs.join_next().await {
        rate += of_one??;
    }
    bench.remove(&Site::Database(database)).await?;
    Ok(rate)
}

struct Statements {
    client: Client,
    insert_outbox: Statement,
    mark_published: Statement,
    insert_notification: Statement,
    insert_send: Statement,
    mark_sent: Statement,
}

impl Statements {
    async fn prepare(client: Client) -> Result<Self> {
        // A plan that was made for empty tables would keep scanning them sequentially.
        client.batch_execute("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan").await?;
        Ok(Statements {
            insert_outbox: client.prepare(INSERT_OUTBOX).await?,
            mark_published: client.prepare(MARK_PUBLISHED).await?,
            insert_notification: client.prepare(INSERT_NOTIFICATION).await?,
            insert_send: client.prepare(INSERT_SEND).await?,
            mark_sent: client.prepare(MARK_SENT).await?,
            client,
        })
    }

    async fn run(self, connection: usize, what: What) -> Result<Rate> {
        // The first steps fill caches.
        const WARM_UP: usize = 3;
        for step in 0..WARM_UP {
            self.step(connection, step, what).await?;
        }
        let (begun, mut steps) = (Instant::now(), 0);
        while begun.elapsed() < WINDOW {
            self.step(connection, WARM_UP + steps, what).await?;
            steps += 1;
        }
        Ok(rate(steps, begun.elapsed()))
    }

    async fn step(&self, connection: usize, step: usize, what: What) -> Result<()> {
        let numbers = || (0..BATCH).map(|row| step * BATCH + row);
        let ids: Vec<Uuid> = numbers().map(|_| Uuid::now_v7()).collect();
        let events: Vec<String> = numbers().map(|n| format!("order-{connection}-{n}")).collect();
        let users: Vec<String> = numbers().map(|n| format!("staff-{}", n % 3_000)).collect();
        let addresses: Vec<String> = numbers().map(|n| format!("person{}@example.com", n % 3_000)).collect();
        let titles: Vec<String> = numbers().map(|n| format!("Order {n}")).collect();
        let bodies = vec!["Giulia Rossi ordered 4 dishes, to be served at 19:30."; BATCH];
        let properties = numbers().map(|n| {
            let order = json!({"number": n, "guest": "Giulia Rossi", "dishes": 4, "at": "19:30", "table": 12});
            json!({"audience": "restaurant", "aggregate_type": "RESTAURANT", "aggregate_id": "r123", "payload": order})
        });
        let properties: Vec<Value> = properties.collect();
        self.client
            .execute(&self.insert_outbox, &[&ids, &events, &users, &addresses, &titles, &bodies])
            .await?;
        if what == What::Cycle {
            self.client.execute(&self.mark_published, &[&ids]).await?;
        }
        if what != What::Inserts {
            self.client
                .execute(&self.insert_notification, &[&ids, &events, &users, &titles, &bodies, &properties])
                .await?;
            self.client.execute(&self.insert_send, &[&ids, &addresses]).await?;
            self.client.execute(&self.mark_sent, &[&ids]).await?;
        }
        Ok(())
    }
}
