-- A failed event begins again, from its first recipient. Unique index on event_id.
UPDATE event_outbox
SET status = 'PENDING', retry_count = 0, last_error = NULL, fan_out_cursor = NULL
WHERE event_id = :event_id AND status = 'FAILED'
