-- Deletes an old outbox row, after its send. Uses the primary key.
DELETE FROM outbox WHERE notification_id = :notification_id AND channel = :channel
