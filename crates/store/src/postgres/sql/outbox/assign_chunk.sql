-- Assigns rows to other chunks. Uses the primary key.
UPDATE campanile.outbox o
SET chunk_id = n.chunk_id
FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS n (chunk_id, notification_id, channel)
WHERE o.notification_id = n.notification_id AND o.channel = n.channel
