-- How far an event is. Unique index on event_id.
SELECT status FROM campanile.event_outbox WHERE event_id = $1
