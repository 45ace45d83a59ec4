-- At start: whoever held a chunk is gone, because the file's lock is ours. A scan: only what waits to be published has
-- a chunk.
UPDATE publish_chunk SET lease_until = NULL WHERE lease_until IS NOT NULL
