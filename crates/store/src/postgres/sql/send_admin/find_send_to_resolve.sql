-- Reads the current state of a send, with the data that a resolution needs. Locks the send, so that two operators
-- cannot resolve it at the same time. Uses primary keys.
SELECT s.notification_id, s.channel, s.status, s.provider, o.event_id, o.recipient_type, o.recipient_id, o.priority
FROM campanile.send s
JOIN campanile.outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
WHERE s.notification_id = $1 AND s.channel = $2
FOR UPDATE OF s
