-- Deletes the attempts of sends that are being deleted. Uses the index send_attempt_send.
DELETE FROM campanile.send_attempt t
USING unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE t.notification_id = k.notification_id AND t.channel = k.channel
