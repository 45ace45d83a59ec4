-- Reads rows of the given events that were published at least the given number of seconds ago and never received. They
-- are ordered by event and outbox_recipient. For one event, only rows after a given row are read. Reads no more rows
-- than the limit and those between them.
SELECT e.id AS seq, o.recipient_type, o.recipient_id, o.channel, o.notification_id, o.queue, o.priority
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS e (id, event_id, ordinal)
CROSS JOIN LATERAL (
    SELECT o.*
    FROM campanile.outbox o
    LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
    LEFT JOIN campanile.publish_chunk c ON c.id = o.chunk_id
    WHERE o.event_id = e.event_id
      AND (o.recipient_type, o.recipient_id, o.channel)
          > (CASE WHEN e.id = $5 THEN $6 ELSE '' END, CASE WHEN e.id = $5 THEN $7 ELSE '' END,
             CASE WHEN e.id = $5 THEN $8 ELSE '' END)
      AND o.status IS NULL AND s.channel IS NULL AND c.id IS NULL
      AND o.queue = ANY ($3::text[]) AND o.created_at <= campanile.now() - make_interval(secs => $4)
    ORDER BY o.recipient_type, o.recipient_id, o.channel
    LIMIT $9) o
ORDER BY e.ordinal, o.recipient_type, o.recipient_id, o.channel
LIMIT $9
