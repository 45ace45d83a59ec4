-- Claims the next free chunk of a queue, by lane, then by age. Uses the index publish_chunk_order.
UPDATE publish_chunk
SET lease_until = :lease_until
WHERE id = (
    SELECT id FROM publish_chunk
    WHERE queue = :queue AND (lease_until IS NULL OR lease_until < :now)
    ORDER BY lane, id
    LIMIT 1)
RETURNING id, queue, lane, first_id, last_id
