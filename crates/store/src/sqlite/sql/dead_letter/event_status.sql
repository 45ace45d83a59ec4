-- How far an event is. Unique index on event_id.
SELECT status FROM event_outbox WHERE event_id = :event_id
