-- Resets a failed row, so that it is published again. Its chunk is assigned separately. Uses the primary key.
UPDATE outbox
SET status = NULL, retry_count = 0, last_error = NULL
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'
