-- Fails a published row that can't be received. A row with a send is left alone. Primary key.
UPDATE outbox SET status = 'FAILED', last_error = :error
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
  AND NOT EXISTS (SELECT 1 FROM send s WHERE s.notification_id = outbox.notification_id AND s.channel = outbox.channel)
RETURNING event_id, recipient_type, recipient_id
