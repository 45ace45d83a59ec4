-- An event that is stored under this id, to compare it with one that comes again. Unique index on event_id.
SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at, created_at
FROM event_outbox
WHERE event_id = :event_id
