-- Removes confirmed rows from a chunk: all rows except the refused ones. Uses a range of the primary key. Refused rows
-- are looked up in a hash table.
UPDATE campanile.outbox o
SET chunk_id = NULL
FROM campanile.publish_chunk c
WHERE c.id = $1 AND o.chunk_id = $1 AND o.notification_id BETWEEN c.first_id AND c.last_id
  AND (o.notification_id, o.channel) NOT IN (SELECT * FROM unnest($2::uuid[], $3::text[]))
