-- Deletes an old outbox row, after its send. Primary key.
DELETE FROM outbox WHERE notification_id = :notification_id AND channel = :channel
