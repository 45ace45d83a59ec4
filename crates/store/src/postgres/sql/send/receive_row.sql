-- Reads the outbox rows that messages refer to. A key without a row is not returned. A row without a notification
-- belongs to a user who has the event's notification under another id. Uses primary keys.
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address,
       o.title, o.body, o.priority, 0 AS attempt_count, e.created_at, o.status IS NULL AND n.id IS NULL AS duplicate
FROM unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
JOIN campanile.event_outbox e ON e.event_id = o.event_id
LEFT JOIN campanile.notification n ON n.id = o.notification_id
