//! A transaction that owns its connection. `BEGIN` is sent without waiting for its answer, because the first statement
//! reports its failure. Dropping the transaction rolls it back.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use deadpool_postgres::Object;
use tokio_postgres::{Row, Statement};

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

    /// Runs one more statement and commits, without waiting for an answer in between. If the statement fails,
    /// PostgreSQL rolls back.
    pub async fn commit_with(
        mut self,
        last: &Statement,
        params: Params<'_>,
        failed: impl Fn(&Object, &tokio_postgres::Error) -> StoreError,
    ) -> Result<Vec<Row>, StoreError> {
        let mut answer = pin!(self.client.query(last, params));
        let (answer, committed) = match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
            // The statement was never sent. PostgreSQL does not know that it failed, and would commit without it.
            Poll::Ready(Err(error)) => return Err(failed(&self.client, &error)),
            Poll::Ready(rows) => (rows, self.client.batch_execute("COMMIT").await),
            Poll::Pending => tokio::join!(biased; answer, self.client.batch_execute("COMMIT")),
        };
        self.open = false;
        let rows = answer.map_err(|error| failed(&self.client, &error))?;
        committed?;
        Ok(rows)
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
