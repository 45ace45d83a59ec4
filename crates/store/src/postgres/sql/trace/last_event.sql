-- The event that arrived last. Uses the primary key.
SELECT id FROM campanile.event_outbox ORDER BY id DESC LIMIT 1
