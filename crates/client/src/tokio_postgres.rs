//! Emits by `tokio-postgres`, also with pools that hand out its clients. Each call is one round trip.

use ::tokio_postgres::GenericClient;
use ::tokio_postgres::types::Type;

use crate::event::{Priority, id};
use crate::postgres::{Batch, CANCEL, EMIT, EMIT_ALL};
use crate::{Error, Event};

/// Writes an event in your transaction, and returns whether it is new. The engine wakes when you commit.
pub async fn emit<C: GenericClient + ?Sized>(client: &C, event: &Event) -> Result<bool, Error> {
    let priority = event.priority.map(Priority::as_str);
    let row = client
        .query_typed_one(
            EMIT,
            &[
                (&event.event_id, Type::TEXT),
                (&event.event_type, Type::TEXT),
                (&event.aggregate_type, Type::TEXT),
                (&event.aggregate_id, Type::TEXT),
                (&event.payload, Type::TEXT),
                (&priority, Type::TEXT),
                (&event.occurred_at, Type::TEXT),
            ],
        )
        .await
        .map_err(Error::database)?;
    row.try_get(0).map_err(Error::database)
}

/// Writes several events at once. The results are in the order of the events.
pub async fn emit_all<C: GenericClient + ?Sized>(client: &C, events: &[Event]) -> Result<Vec<bool>, Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let batch = Batch::new(events);
    let rows = client
        .query_typed(
            EMIT_ALL,
            &[
                (&batch.column(|e| e.event_id.as_str()), Type::TEXT_ARRAY),
                (&batch.column(|e| e.event_type.as_str()), Type::TEXT_ARRAY),
                (&batch.column(|e| e.aggregate_type.as_str()), Type::TEXT_ARRAY),
                (&batch.column(|e| e.aggregate_id.as_str()), Type::TEXT_ARRAY),
                (&batch.column(|e| e.payload.as_str()), Type::TEXT_ARRAY),
                (&batch.column(|e| e.priority.map(Priority::as_str)), Type::TEXT_ARRAY),
                (&batch.column(|e| e.occurred_at.as_deref()), Type::TEXT_ARRAY),
            ],
        )
        .await
        .map_err(Error::database)?;
    let created = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let created: Vec<(i64, bool)> =
        created.collect::<Result<_, ::tokio_postgres::Error>>().map_err(Error::database)?;
    Ok(batch.in_order(created))
}

/// Cancels an event: nobody else is notified of it. Recipients that were notified already are not affected. Returns
/// false if it was cancelled before.
pub async fn cancel<C: GenericClient + ?Sized>(
    client: &C,
    event_id: &str,
    reason: &str,
) -> Result<bool, Error> {
    let event_id = id(event_id.to_owned())?;
    let params: &[(&(dyn ::tokio_postgres::types::ToSql + Sync), Type)] =
        &[(&event_id, Type::TEXT), (&reason, Type::TEXT)];
    let asked = client.execute_typed(CANCEL, params).await.map_err(Error::database)?;
    Ok(asked > 0)
}
