-- Cancels a row that will not be sent. Uses the primary key.
UPDATE outbox SET status = 'CANCELLED', last_error = :error
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
