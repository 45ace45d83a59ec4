-- An event that can't be fanned out; only a replay brings it back. Primary key.
UPDATE event_outbox
SET status = 'FAILED', last_error = :error, fan_out_cursor = NULL
WHERE id = :id AND status = 'PENDING'
