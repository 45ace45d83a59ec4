-- Inserts chunks of rows to publish. Ids rise in the order of the arrays.
INSERT INTO campanile.publish_chunk (queue, lane, first_id, last_id, lease_until)
SELECT c.queue, c.lane, c.first_id, c.last_id, CASE WHEN c.leased THEN campanile.now() + make_interval(secs => $6) END
FROM unnest($1::text[], $2::smallint[], $3::uuid[], $4::uuid[], $5::boolean[])
     WITH ORDINALITY AS c (queue, lane, first_id, last_id, leased, ordinal)
ORDER BY c.ordinal
RETURNING id
