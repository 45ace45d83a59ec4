-- Cancels rows that will not be sent. Uses the primary key.
UPDATE campanile.outbox o
SET status = 'CANCELLED', last_error = $3
FROM unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE o.notification_id = k.notification_id AND o.channel = k.channel AND o.status IS NULL
