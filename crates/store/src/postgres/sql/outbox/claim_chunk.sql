-- Claims the next free chunk of a queue, by lane, then by age. Uses the index publish_chunk_order. Chunks that another
-- claim is taking are skipped. No index contains the lease, so this is a HOT update.
UPDATE campanile.publish_chunk
SET lease_until = campanile.now() + make_interval(secs => $2)
WHERE id = (
    SELECT id FROM campanile.publish_chunk
    WHERE queue = $1 AND (lease_until IS NULL OR lease_until < campanile.now())
    ORDER BY lane, id
    LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING id, queue, lane, first_id, last_id
