-- Reads the next events by arrival, and which of them may be deleted. Uses the primary key.
SELECT id, created_at < :before AS is_old, status IN ('PROCESSED', 'FAILED', 'CANCELLED') AS is_closed
FROM event_outbox
WHERE id > :after
ORDER BY id
LIMIT :limit
