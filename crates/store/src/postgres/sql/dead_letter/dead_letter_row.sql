-- Reads the row that a dead letter refers to, with its send. Uses the unique index outbox_recipient, then the primary
-- key.
SELECT o.notification_id, o.channel, o.queue, o.priority, o.status,
       (SELECT s.status FROM campanile.send s WHERE s.notification_id = o.notification_id
        AND s.channel = o.channel) AS send
FROM campanile.outbox o
WHERE o.event_id = $1 AND o.recipient_type = $2 AND o.recipient_id = $3 AND o.channel = $4
