-- Reads the row that a dead letter refers to, with its send. Uses the unique index outbox_recipient, then the primary
-- key.
SELECT o.notification_id, o.channel, o.queue, o.priority, o.status, s.status AS send
FROM outbox o
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.event_id = :event_id AND o.recipient_type = :recipient_type AND o.recipient_id = :recipient_id
  AND o.channel = :channel
