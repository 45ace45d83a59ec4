-- Rows that were published at least so many seconds ago and never received, of events that are not closed. Partial indexes
-- event_outbox_open and event_outbox_unfinished, then outbox_recipient.
SELECT o.notification_id, o.channel, o.queue, o.priority
FROM (SELECT event_id FROM campanile.event_outbox WHERE status = 'PUBLISHED'
      UNION ALL
      SELECT event_id FROM campanile.event_outbox WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL) e
JOIN campanile.outbox o ON o.event_id = e.event_id
LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
LEFT JOIN campanile.publish_chunk c ON c.id = o.chunk_id
WHERE o.status IS NULL AND s.channel IS NULL AND c.id IS NULL
  AND o.queue = ANY ($1::text[]) AND o.created_at <= campanile.now() - make_interval(secs => $2)
LIMIT $3
