-- Reads the rows of a chunk with their events, without rows that have been received in the meantime. Uses a range of
-- the primary key.
SELECT o.notification_id, o.channel, o.recipient_type, o.recipient_id, o.recipient_address, o.title, o.body, o.priority,
       o.audience, o.entity_type, o.entity_id, o.shared_read, o.queue,
       e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority AS event_priority,
       e.occurred_at, e.created_at
FROM campanile.outbox o
JOIN campanile.event_outbox e ON e.event_id = o.event_id
LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.notification_id BETWEEN $2 AND $3
  AND o.chunk_id = $1 AND o.status IS NULL AND s.channel IS NULL
ORDER BY o.notification_id, o.channel
