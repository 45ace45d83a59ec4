//! Emits by `sqlx` into PostgreSQL. Each call is one round trip once the connection has prepared the statement.

use ::sqlx::{PgExecutor, Row};

use crate::event::{Priority, id};
use crate::postgres::{Batch, CANCEL, EMIT, EMIT_ALL};
use crate::{Error, Event};

/// Writes an event in your transaction (`&mut *transaction`), and returns whether it is new. The engine wakes when you
/// commit.
pub async fn emit<'c>(executor: impl PgExecutor<'c>, event: &Event) -> Result<bool, Error> {
    ::sqlx::query_scalar(EMIT)
        .bind(&event.event_id)
        .bind(&event.event_type)
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(&event.payload)
        .bind(event.priority.map(Priority::as_str))
        .bind(&event.occurred_at)
        .fetch_one(executor)
        .await
        .map_err(Error::database)
}

/// Writes several events at once. The results are in the order of the events.
pub async fn emit_all<'c>(executor: impl PgExecutor<'c>, events: &[Event]) -> Result<Vec<bool>, Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Batch::new(events);
    let rows = ::sqlx::query(EMIT_ALL)
        .bind(batch.column(|e| e.event_id.as_str()))
        .bind(batch.column(|e| e.event_type.as_str()))
        .bind(batch.column(|e| e.aggregate_type.as_str()))
        .bind(batch.column(|e| e.aggregate_id.as_str()))
        .bind(batch.column(|e| e.payload.as_str()))
        .bind(batch.column(|e| e.priority.map(Priority::as_str)))
        .bind(batch.column(|e| e.occurred_at.as_deref()))
        .fetch_all(executor)
        .await
        .map_err(Error::database)?;
    let created = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let created: Vec<(i64, bool)> = created.collect::<Result<_, ::sqlx::Error>>().map_err(Error::database)?;
    Ok(batch.in_order(created))
}

/// Cancels an event: nobody else is notified of it. Recipients that were notified already are not affected. Returns
/// false if it was cancelled before.
pub async fn cancel<'c>(executor: impl PgExecutor<'c>, event_id: &str, reason: &str) -> Result<bool, Error> {
    let event_id = id(event_id.to_owned())?;
    let asked = ::sqlx::query(CANCEL).bind(event_id).bind(reason).execute(executor).await;
    Ok(asked.map_err(Error::database)?.rows_affected() > 0)
}
