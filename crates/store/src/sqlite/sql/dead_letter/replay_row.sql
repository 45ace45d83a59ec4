-- A failed row is to be published again; its chunk is given to it apart. Primary key.
UPDATE outbox
SET status = NULL, retry_count = 0, last_error = NULL
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'
