-- Marks published rows that cannot be received as failed. A row with a send is left unchanged. Uses the primary key.
UPDATE campanile.outbox o
SET status = 'FAILED', last_error = f.error
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS f (notification_id, channel, error)
WHERE o.notification_id = f.notification_id AND o.channel = f.channel AND o.status IS NULL
  AND NOT EXISTS (SELECT FROM campanile.send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
RETURNING o.notification_id, o.channel, o.event_id, o.recipient_type, o.recipient_id
