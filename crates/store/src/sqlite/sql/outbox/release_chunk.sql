-- Releases a chunk, which waits until `lease_until` if that is given. Primary key.
UPDATE publish_chunk SET lease_until = :lease_until WHERE id = :id
