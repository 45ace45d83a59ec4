-- A chunk whose every row was confirmed. Primary key.
DELETE FROM campanile.publish_chunk WHERE id = $1
