-- Deletes an old send. Uses the primary key.
DELETE FROM send WHERE notification_id = :notification_id AND channel = :channel
