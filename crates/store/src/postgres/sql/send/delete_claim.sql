-- Deletes claims that have no sends. Uses the primary key.
DELETE FROM campanile.send_claim WHERE id = ANY ($1::bigint[])
