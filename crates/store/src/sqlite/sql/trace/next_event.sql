-- The first event from a number on, for the search by time. Uses the primary key.
SELECT id, created_at FROM event_outbox WHERE id >= :id ORDER BY id LIMIT 1
