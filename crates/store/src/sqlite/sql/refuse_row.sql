-- Counts a refusal by the broker against a row. Primary key.
UPDATE outbox
SET retry_count = retry_count + 1, last_error = :error,
    status = CASE WHEN retry_count + 1 >= :max THEN 'FAILED' END
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
RETURNING status, event_id, recipient_type, recipient_id
