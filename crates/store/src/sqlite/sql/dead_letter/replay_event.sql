-- Restarts the fan-out of a failed event, from its first recipient. Uses the unique index on event_id.
UPDATE event_outbox
SET status = 'PENDING', retry_count = 0, last_error = NULL, fan_out_cursor = NULL
WHERE event_id = :event_id AND status = 'FAILED'
