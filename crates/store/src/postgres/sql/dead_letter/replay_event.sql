-- Restarts the fan-out of a failed event, from its first recipient. Uses the unique index on event_id.
UPDATE campanile.event_outbox
SET status = 'PENDING', retry_count = 0, last_error = NULL, fan_out_cursor = NULL
WHERE id = (SELECT id FROM campanile.event_outbox WHERE event_id = $1) AND status = 'FAILED'
