-- Deletes the outcomes per address of a send that is being deleted. Uses the primary key.
DELETE FROM send_address WHERE notification_id = :notification_id AND channel = :channel
