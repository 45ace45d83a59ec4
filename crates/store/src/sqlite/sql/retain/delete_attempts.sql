-- Deletes the attempts of a send that is deleted. Index send_attempt_send.
DELETE FROM send_attempt WHERE notification_id = :notification_id AND channel = :channel
