-- The row that a dead letter speaks of, with its send. Unique index outbox_recipient, then primary key.
SELECT o.notification_id, o.channel, o.queue, o.priority, o.status, s.status AS send
FROM campanile.outbox o
LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.event_id = $1 AND o.recipient_type = $2 AND o.recipient_id = $3 AND o.channel = $4
