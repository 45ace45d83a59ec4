//! A transaction that owns its connection. `BEGIN` is sent without waiting for its answer, because the first statement
//! reports its failure. Dropping the transaction rolls it back.

use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Waker};

use deadpool_postgres::Object;
use tokio_postgres::Row;

use super::Params;
use crate::StoreError;

#[derive(Debug)]
pub struct Transaction {
    client: Object,
    open: bool,
}

impl Transaction {
    pub fn begin(client: Object) -> Self {
        send(&client, "BEGIN");
        Transaction { client, open: true }
    }

    pub fn begin_snapshot(client: Object) -> Self {
        send(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        Transaction { client, open: true }
    }

    /// The connection, for statements that are sent together.
    pub fn client(&self) -> &Object {
        &self.client
    }

    pub async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        super::query(&self.client, sql, params).await
    }

    pub async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, StoreError> {
        super::execute(&self.client, sql, params).await
    }

    pub async fn commit(mut self) -> Result<(), StoreError> {
        self.client.batch_execute("COMMIT").await?;
        self.open = false;
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.client
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.open {
            send(&self.client, "ROLLBACK");
        }
    }
}

/// Sends a statement without awaiting its answer. The driver sends when the future is first polled, and keeps the
/// order.
fn send(client: &Object, sql: &str) {
    let mut sent = pin!(client.batch_execute(sql));
    drop(sent.as_mut().poll(&mut Context::from_waker(Waker::noop())));
}
