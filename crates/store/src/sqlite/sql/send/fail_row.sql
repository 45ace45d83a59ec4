-- Marks a published row that cannot be received as failed. A row with a send is left unchanged. Uses the primary key.
UPDATE outbox SET status = 'FAILED', last_error = :error
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
  AND NOT EXISTS (SELECT 1 FROM send s WHERE s.notification_id = outbox.notification_id AND s.channel = outbox.channel)
RETURNING event_id, recipient_type, recipient_id
