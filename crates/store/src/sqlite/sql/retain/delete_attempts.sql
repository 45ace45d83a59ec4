-- Deletes the attempts of a send that is being deleted. Uses the index send_attempt_send.
DELETE FROM send_attempt WHERE notification_id = :notification_id AND channel = :channel
