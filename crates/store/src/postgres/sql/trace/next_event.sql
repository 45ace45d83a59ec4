-- The first event from a number on, for the search by time. Uses the primary key.
SELECT id, created_at FROM campanile.event_outbox WHERE id >= $1 ORDER BY id LIMIT 1
