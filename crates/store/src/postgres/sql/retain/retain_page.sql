-- Reads the next events by arrival, and which of them may be deleted. Uses the primary key.
SELECT id, created_at < $1::timestamptz AS is_old,
       status IN ('PROCESSED', 'FAILED', 'CANCELLED') AS is_closed
FROM campanile.event_outbox
WHERE id > $2
ORDER BY id
LIMIT $3
