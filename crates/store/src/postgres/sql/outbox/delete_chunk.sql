-- Deletes chunks whose rows were all confirmed. Uses the primary key.
DELETE FROM campanile.publish_chunk WHERE id = ANY ($1::bigint[])
