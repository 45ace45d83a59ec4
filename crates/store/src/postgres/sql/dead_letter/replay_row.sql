-- A failed row is to be published again; its chunk is given to it apart. Primary key.
UPDATE campanile.outbox
SET status = NULL, retry_count = 0, last_error = NULL
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'
