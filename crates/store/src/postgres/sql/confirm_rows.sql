-- The rows of a chunk that were not refused are published: they leave the chunk. A range of the primary key.
UPDATE campanile.outbox o
SET chunk_id = NULL
FROM campanile.publish_chunk c
WHERE c.id = $1 AND o.chunk_id = $1 AND o.notification_id BETWEEN c.first_id AND c.last_id
  AND NOT EXISTS (SELECT FROM unnest($2::uuid[], $3::text[]) AS r (notification_id, channel)
                  WHERE r.notification_id = o.notification_id AND r.channel = o.channel)
