//! Emits by `rusqlite` into Campanile's own file. The engine finds the event by polling, within a second.

use ::rusqlite::{Connection, named_params};

use crate::event::{Priority, id};
use crate::{Error, Event};

/// Ids of events that were deleted long ago still count as known.
const EMIT: &str = "INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload,
    priority, occurred_at)
                    SELECT :event_id, :event_type, :aggregate_type, :aggregate_id, :payload, :priority, :occurred_at
                    WHERE NOT EXISTS (SELECT 1 FROM processed_event WHERE event_id = :event_id)
                    ON CONFLICT DO NOTHING";

const CANCEL: &str =
    "INSERT INTO event_cancel (event_id, reason) VALUES (:event_id, :reason) ON CONFLICT DO NOTHING";

/// Writes an event in your transaction, and returns whether it is new.
pub fn emit(connection: &Connection, event: &Event) -> Result<bool, Error> {
    let written = connection.execute(
        EMIT,
        named_params! {
            ":event_id": event.event_id,
            ":event_type": event.event_type,
            ":aggregate_type": event.aggregate_type,
            ":aggregate_id": event.aggregate_id,
            ":payload": event.payload,
            ":priority": event.priority.map(Priority::as_str),
            ":occurred_at": event.occurred_at,
        },
    );
    Ok(written.map_err(Error::database)? > 0)
}

/// Writes several events. The results are in the order of the events.
pub fn emit_all(connection: &Connection, events: &[Event]) -> Result<Vec<bool>, Error> {
    events.iter().map(|event| emit(connection, event)).collect()
}

/// Cancels an event: nobody else is notified of it. Recipients that were notified already are not affected. Returns
/// false if it was cancelled before.
pub fn cancel(connection: &Connection, event_id: &str, reason: &str) -> Result<bool, Error> {
    let event_id = id(event_id.to_owned())?;
    let asked = connection.execute(CANCEL, named_params! { ":event_id": event_id, ":reason": reason });
    Ok(asked.map_err(Error::database)? > 0)
}
