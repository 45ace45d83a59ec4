-- Assigns a row to another chunk. Uses the primary key.
UPDATE outbox SET chunk_id = :chunk_id WHERE notification_id = :notification_id AND channel = :channel
