-- Releases a chunk. If `lease_until` is given, the chunk waits until then. Uses the primary key.
UPDATE publish_chunk SET lease_until = :lease_until WHERE id = :id
