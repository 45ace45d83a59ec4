-- Deletes the keys before this one. Their tokens end at once. Uses the primary key.
DELETE FROM campanile.signing_key WHERE id < $1
