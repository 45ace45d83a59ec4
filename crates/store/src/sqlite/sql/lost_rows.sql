-- Rows that were published some time ago and never received, of events that are not closed. Partial indexes
-- event_outbox_open and event_outbox_unfinished, then outbox_recipient.
SELECT o.notification_id, o.channel, o.queue, o.priority
FROM (SELECT event_id FROM event_outbox WHERE status = 'PUBLISHED'
      UNION ALL
      SELECT event_id FROM event_outbox WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL) e
JOIN outbox o ON o.event_id = e.event_id
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
LEFT JOIN publish_chunk c ON c.id = o.chunk_id
WHERE o.status IS NULL AND s.channel IS NULL AND c.id IS NULL
  AND o.created_at <= :written_before
  AND o.queue IN (SELECT value FROM json_each(:queues))
LIMIT :limit
