-- Deletes an old send. Primary key.
DELETE FROM send WHERE notification_id = :notification_id AND channel = :channel
