-- The event that arrived last. Uses the primary key.
SELECT id FROM event_outbox ORDER BY id DESC LIMIT 1
