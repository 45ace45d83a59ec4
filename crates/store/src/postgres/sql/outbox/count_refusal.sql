-- Counts refusals of rows by the broker. A row that has been received in the meantime is left unchanged. Uses primary
-- keys.
UPDATE campanile.outbox o
SET retry_count = o.retry_count + 1, last_error = r.error,
    status = CASE WHEN o.retry_count + 1 >= $4 THEN 'FAILED' END
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS r (notification_id, channel, error)
WHERE o.notification_id = r.notification_id AND o.channel = r.channel AND o.status IS NULL
  AND NOT EXISTS (SELECT FROM campanile.send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
RETURNING o.notification_id, o.channel, o.status, o.last_error, o.event_id, o.recipient_type, o.recipient_id
