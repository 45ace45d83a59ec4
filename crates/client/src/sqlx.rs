//! Over `sqlx`, for PostgreSQL. Each call is one round trip once the connection knows the statement.

use ::sqlx::{PgExecutor, Row};

use crate::event::{Priority, id};
use crate::postgres::{Batch, CANCEL, EMIT, EMIT_ALL};
use crate::{Error, Event};

/// Writes an event in your transaction (`&mut *transaction`), and answers whether it is new. The engine wakes when you
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

/// The same for several at once: the answers are in the order of the events.
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

/// Asks that nobody is told of an event any more; who was told already, was. Answers whether nobody asked before.
pub async fn cancel<'c>(executor: impl PgExecutor<'c>, event_id: &str, reason: &str) -> Result<bool, Error> {
    let event_id = id(event_id.to_owned())?;
    let asked = ::sqlx::query(CANCEL).bind(event_id).bind(reason).execute(executor).await;
    Ok(asked.map_err(Error::database)?.rows_affected() > 0)
}
