-- Reads the status of an event. Uses the unique index on event_id.
SELECT status FROM event_outbox WHERE event_id = :event_id
