-- Deletes a chunk whose every row was confirmed. Primary key.
DELETE FROM publish_chunk WHERE id = :id
