-- Reads the stored event with the given id, to compare its body with that of a new event. Uses the unique index on
-- event_id.
SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at, created_at
FROM event_outbox
WHERE event_id = :event_id
