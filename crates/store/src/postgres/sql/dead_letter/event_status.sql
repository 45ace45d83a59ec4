-- Reads the status of an event. Uses the unique index on event_id.
SELECT status FROM campanile.event_outbox WHERE event_id = $1
