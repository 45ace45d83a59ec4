-- Puts a row into another chunk. Primary key.
UPDATE outbox SET chunk_id = :chunk_id WHERE notification_id = :notification_id AND channel = :channel
