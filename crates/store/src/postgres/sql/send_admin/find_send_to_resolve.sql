-- A send as it is now, with what a verdict about it has to know. It is locked, so that of two persons one is the first.
-- Primary keys.
SELECT s.notification_id, s.channel, s.status, s.provider, o.event_id, o.recipient_type, o.recipient_id, o.priority
FROM campanile.send s
JOIN campanile.outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
WHERE s.notification_id = $1 AND s.channel = $2
FOR UPDATE OF s
