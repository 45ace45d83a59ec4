-- Resets a failed row, so that it is published again. Its chunk is assigned separately. Uses the primary key.
UPDATE campanile.outbox
SET status = NULL, retry_count = 0, last_error = NULL
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'
