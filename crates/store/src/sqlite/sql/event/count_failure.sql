-- Counts a failure of an event that could not be fanned out. Uses the primary key.
UPDATE event_outbox
SET retry_count = retry_count + 1, last_error = :error
WHERE id = :id AND status = 'PENDING'
RETURNING retry_count, event_id
