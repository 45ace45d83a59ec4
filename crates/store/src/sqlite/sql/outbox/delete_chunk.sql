-- Deletes a chunk whose rows were all confirmed. Uses the primary key.
DELETE FROM publish_chunk WHERE id = :id
