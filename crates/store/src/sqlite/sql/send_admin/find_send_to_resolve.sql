-- Reads the current state of a send, with the data that a resolution needs. Uses primary keys.
SELECT s.notification_id, s.channel, s.status, s.provider, o.event_id, o.recipient_type, o.recipient_id, o.priority
FROM send s
JOIN outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
WHERE s.notification_id = :notification_id AND s.channel = :channel
