-- Deletes the keys before this one. Their tokens end at once. Uses the primary key.
DELETE FROM signing_key WHERE id < :id
