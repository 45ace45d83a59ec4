-- Deletes chunks whose every row was confirmed. Primary key.
DELETE FROM campanile.publish_chunk WHERE id = ANY ($1::bigint[])
