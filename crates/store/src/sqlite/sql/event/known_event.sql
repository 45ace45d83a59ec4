-- The stored event with this id, to compare its body with a new one. Unique index on event_id.
SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at, created_at
FROM event_outbox
WHERE event_id = :event_id
