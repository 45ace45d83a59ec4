-- Deletes the outcomes by address of a send that is deleted. Primary key.
DELETE FROM send_address WHERE notification_id = :notification_id AND channel = :channel
