-- Reads rows of an event that were published before a given time and never received, after a given row. Uses the index
-- outbox_recipient, in its order.
SELECT o.recipient_type, o.recipient_id, o.channel, o.notification_id, o.queue, o.priority
FROM outbox o
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
LEFT JOIN publish_chunk c ON c.id = o.chunk_id
WHERE o.event_id = :event_id
  AND (o.recipient_type, o.recipient_id, o.channel) > (:recipient_type, :recipient_id, :channel)
  AND o.status IS NULL AND s.channel IS NULL AND c.id IS NULL
  AND o.created_at <= :written_before
  AND o.queue IN (SELECT value FROM json_each(:queues))
ORDER BY o.recipient_type, o.recipient_id, o.channel
LIMIT :limit
