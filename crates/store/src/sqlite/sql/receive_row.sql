-- The outbox row that a message speaks of. Primary key.
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, 0 AS attempt_count, o.status
FROM outbox o
JOIN event_outbox e ON e.event_id = o.event_id
WHERE o.notification_id = :notification_id AND o.channel = :channel
