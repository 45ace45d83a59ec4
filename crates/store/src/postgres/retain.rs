//! Retention: deletes a bounded number of old rows at a time. An event is deleted after everything that belongs to it.

use std::time::Duration;

use async_trait::async_trait;
use campanile_domain::id::EventSeq;
use campanile_domain::time::Timestamp;
use tokio_postgres::Row;

use super::outbox::columns;
use super::transaction::Transaction;
use super::{Params, Postgres, read, statement};
use crate::decode;
use crate::retain::{MAX_PAGE_EVENTS, advanced_horizon, effective_horizon};
use crate::{Horizon, RetainStore, Retained, StoreError};

#[async_trait]
impl RetainStore for Postgres {
    async fn move_horizon(
        &self,
        age: Duration,
        known_version: Option<i64>,
        by: Duration,
    ) -> Result<Option<Horizon>, StoreError> {
        let mut rows = self.query(statement::READ_HORIZON, &[]).await?;
        if rows.is_empty() {
            self.execute(statement::BEGIN_HORIZON, &[]).await?;
            rows = self.query(statement::READ_HORIZON, &[]).await?;
        }
        let Some(row) = rows.first() else { return Ok(None) };
        let (mut stored, now): (Timestamp, Timestamp) = (read::get(row, "horizon")?, read::get(row, "now")?);
        let mut version: i64 = read::get(row, "version")?;
        if known_version == Some(version) {
            let advanced = advanced_horizon(stored, now, age, by);
            // If another instance moved the horizon first, this returns the horizon that it read.
            if self.execute(statement::MOVE_HORIZON, &[&advanced, &version]).await? > 0 {
                (stored, version) = (advanced, version + 1);
            }
        }
        Ok(Some(Horizon { before: effective_horizon(stored, now, age), version }))
    }

    async fn retain(&self, before: Timestamp, after: EventSeq, limit: usize) -> Result<Retained, StoreError> {
        let transaction = self.begin().await?;
        let locked = transaction.query(statement::LOCK_RETAIN, &[]).await?;
        if !read::get::<bool>(read::only_row(&locked)?, "acquired")? {
            // Another instance is running retention.
            return Ok(Retained::default());
        }
        let mut budget = Budget { spent: 0, limit: limit.max(1) as u64, stop: false };
        let next = retain(&transaction, before, after, &mut budget).await?;
        transaction.commit().await?;
        Ok(Retained { rows: budget.spent, next })
    }
}

/// The number of rows that may still be deleted.
struct Budget {
    spent: u64,
    limit: u64,
    /// Whether to stop even if some of the limit is left.
    stop: bool,
}

impl Budget {
    fn left(&self) -> i64 {
        i64::try_from(self.limit.saturating_sub(self.spent)).unwrap_or(i64::MAX)
    }

    fn is_spent(&self) -> bool {
        self.stop || self.left() == 0
    }
}

/// Deletes old events after `after`. Returns the event after which the next call continues.
async fn retain(
    transaction: &Transaction,
    before: Timestamp,
    after: EventSeq,
    budget: &mut Budget,
) -> Result<Option<EventSeq>, StoreError> {
    let limit = i64::try_from(MAX_PAGE_EVENTS).unwrap_or(i64::MAX);
    let events = transaction.query(statement::RETAIN_PAGE, &[&before, &after.0, &limit]).await?;
    let is = |row: &Row, column: &str| read::get::<bool>(row, column);
    let (mut passed, mut any_old) = (after, false);
    for event in &events {
        let seq = EventSeq(read::get(event, "id")?);
        any_old |= is(event, "is_old")?;
        if is(event, "is_old")? && is(event, "is_closed")? && !delete_event(transaction, seq, budget).await? {
            return Ok(Some(passed));
        }
        passed = seq;
    }
    if any_old && events.len() == MAX_PAGE_EVENTS {
        return Ok(Some(passed));
    }
    for sql in [statement::DELETE_OLD_CAPTURED, statement::DELETE_DEAD_LETTERS_WITHOUT_EVENT] {
        budget.spent += transaction.execute(sql, &[&before, &budget.left()]).await?;
    }
    Ok(budget.is_spent().then_some(passed))
}

/// Deletes an event and its finished rows. Returns `true` if the event is deleted, or if it stays because of an
/// unsettled send. Returns `false` if more rows remain than one call may delete.
async fn delete_event(
    transaction: &Transaction,
    seq: EventSeq,
    budget: &mut Budget,
) -> Result<bool, StoreError> {
    let id = seq.0;
    delete_rows(transaction, id, budget).await?;
    if budget.is_spent() {
        return Ok(false);
    }
    if !transaction.query(statement::HAS_ROWS, &[&id]).await?.is_empty() {
        return Ok(true);
    }
    for sql in [
        statement::DELETE_CAPTURED_OF,
        statement::DELETE_DEAD_LETTERS_OF,
        statement::DELETE_EVENT_NOTIFICATIONS_OF,
        statement::DELETE_SEND_ONCE_OF,
    ] {
        budget.spent += transaction.execute(sql, &[&id, &budget.left()]).await?;
        if budget.is_spent() {
            return Ok(false);
        }
    }
    remember(transaction, id).await?;
    transaction.execute(statement::CLEAR_DECISIONS, &[&id]).await?;
    budget.spent += transaction.execute(statement::DELETE_CANCEL, &[&id]).await?;
    budget.spent += transaction.execute(statement::DELETE_EVENT, &[&id]).await?;
    Ok(true)
}

/// Deletes finished rows, each with its send. A notification is deleted with its last row. For each row at most four
/// rows are deleted, not counting attempts and addresses.
async fn delete_rows(transaction: &Transaction, id: i64, budget: &mut Budget) -> Result<(), StoreError> {
    const MAX_DELETED_PER_ROW: i64 = 4;
    let limit = (budget.left() / MAX_DELETED_PER_ROW).max(1);
    let rows = transaction.query(statement::FINISHED_ROWS, &[&id, &limit]).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let keys = rows.iter().map(decode::key_of).collect::<Result<Vec<_>, _>>()?;
    let (ids, channels) = columns(keys);
    let params: Params = &[&ids, &channels];
    for sql in [
        statement::DELETE_ATTEMPTS,
        statement::DELETE_SEND_ADDRESSES,
        statement::DELETE_SEND,
        statement::DELETE_ROW,
    ] {
        budget.spent += transaction.execute(sql, params).await?;
    }
    budget.spent += transaction.execute(statement::DELETE_NOTIFICATION, &[&ids]).await?;
    if i64::try_from(rows.len()) == Ok(limit) {
        // More rows may remain. The next call checks.
        budget.stop = true;
    }
    Ok(())
}

/// Stores the id of an event forever, and its hash if the body could be read.
async fn remember(transaction: &Transaction, id: i64) -> Result<(), StoreError> {
    let rows = transaction.query(statement::EVENT_WITHOUT_PROCESSED, &[&id]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let hash = decode::body_hash(row);
    transaction.execute(statement::REMEMBER_EVENT, &[&id, &hash.as_str()]).await.map(drop)
}
