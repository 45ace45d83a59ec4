-- Counts a refusal of a row by the broker. A row that has been received in the meantime is left unchanged. Uses primary
-- keys.
UPDATE outbox
SET retry_count = retry_count + 1, last_error = :error,
    status = CASE WHEN retry_count + 1 >= :max THEN 'FAILED' END
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
  AND NOT EXISTS (SELECT 1 FROM send s WHERE s.notification_id = outbox.notification_id AND s.channel = outbox.channel)
RETURNING status, event_id, recipient_type, recipient_id
