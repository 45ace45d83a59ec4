-- Deletes claims without sends. Primary key.
DELETE FROM campanile.send_claim WHERE id = ANY ($1::bigint[])
