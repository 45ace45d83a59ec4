-- The next chunk that nobody holds, of these queues: the best of each queue's first, by lane, then by age. Index
-- publish_chunk_order once per queue.
UPDATE publish_chunk
SET lease_until = :lease_until
WHERE id = (
    SELECT c.id
    FROM json_each(:queues) q
    JOIN publish_chunk c ON c.id = (
        SELECT f.id FROM publish_chunk f
        WHERE f.queue = q.value AND (f.lease_until IS NULL OR f.lease_until < :now)
        ORDER BY f.lane, f.id LIMIT 1)
    ORDER BY c.lane, c.id
    LIMIT 1)
RETURNING id, queue, lane, first_id, last_id
