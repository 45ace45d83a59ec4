-- Counts a failure of an event that could not be fanned out. Uses the primary key.
UPDATE campanile.event_outbox
SET retry_count = retry_count + 1, last_error = $2
WHERE id = $1 AND status = 'PENDING'
RETURNING retry_count, event_id
