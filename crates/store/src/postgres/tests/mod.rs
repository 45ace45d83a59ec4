//! Tests of what only PostgreSQL has: its plans, its locks and its roles. The conformance suite tests what all
//! databases share.

mod claim;
mod connection_errors;
mod guide;
mod hot;
mod long_transaction;
mod migrate;
mod plan;
mod producer;
mod recipient_view;
mod role;
mod seed;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use campanile_domain::channel::Channel;
use campanile_domain::event::NewEvent;
use campanile_domain::fan_out::OutboxRow;
use campanile_domain::id::{EventId, NotificationId, SendKey, UserId, UserRef, UserTypeName};
use campanile_domain::priority::Priority;
use campanile_domain::queue::Queue;
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use super::Postgres;
use super::test_database::Database;
use crate::conformance::Fixture;
use crate::{FanOutClaim, FanOutCommit, ReceivedKey, Store};

const LEASE: Duration = Duration::from_mins(1);
const QUEUE: &str = "notification.customer";

async fn fixture() -> Fixture {
    let database = Database::new().await;
    let store = database.open().await;
    Fixture { store: Arc::new(store), test_database: Box::new(database) }
}

fn event(id: &str) -> NewEvent {
    serde_json::from_value(json!({
        "event_id": id, "event_type": "ORDER_CREATED", "aggregate_type": "ORDER", "aggregate_id": "7",
    }))
    .unwrap()
}

/// An e-mail row for each of this many customers.
fn rows(event_id: &str, customers: usize) -> Vec<OutboxRow> {
    let row = |n: usize| OutboxRow {
        key: SendKey { notification_id: NotificationId::generate(), channel: Channel::Email },
        event_id: EventId::stored(event_id),
        recipient: UserRef {
            user_type: UserTypeName::stored("CUSTOMER"),
            user_id: UserId::stored(n.to_string()),
        },
        address: format!("{n}@example.org"),
        title: "title".to_owned(),
        body: "body".to_owned(),
        inbox: None,
        priority: Priority::Normal,
        audience: "customer".to_owned(),
        entity: None,
        shared_read: false,
        queue: Queue::named(QUEUE),
        failure: None,
    };
    (0..customers).map(row).collect()
}

fn received(rows: &[OutboxRow]) -> Vec<ReceivedKey> {
    rows.iter().map(|row| ReceivedKey { key: row.key, claim: true, published: None }).collect()
}

fn ids(claim: &dyn FanOutClaim) -> Vec<&str> {
    claim.events().iter().map(|claimed| claimed.event.event_id.as_str()).collect()
}

/// A commit that changes nothing.
fn nothing() -> FanOutCommit {
    FanOutCommit {
        instance: "test".to_owned(),
        steps: Vec::new(),
        chunks: Vec::new(),
        failed_rows: Vec::new(),
        lease: LEASE,
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn shared(store: Postgres) -> Arc<dyn Store> {
    Arc::new(store)
}
