//! Forgetting what is old. What an event id and its body were is never forgotten.

use std::time::Duration;

use async_trait::async_trait;

use crate::StoreError;

/// What one batch came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Retained {
    pub rows: u64,
    /// Where the next batch goes on, if there may be more.
    pub next: Option<i64>,
}

#[async_trait]
pub trait RetainStore {
    /// Deletes events that arrived longer ago than `age`, with all that belongs to them, behind the event `after`; some
    /// `limit` rows. An event that is not closed stays, and so does one with a send that is not settled: of that, the rows that
    /// are done with go. `processed_event` keeps id and hash, and loses the decisions. Behind the last event, dead letters of no
    /// event and captured messages of that age go, too.
    async fn retain(&self, age: Duration, after: i64, limit: usize) -> Result<Retained, StoreError>;
}
