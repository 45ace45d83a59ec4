-- Releases all claimed chunks at start. This process holds the file's lock, so all holders of chunks are gone. This is
-- a scan: only rows that wait to be published have a chunk.
UPDATE publish_chunk SET lease_until = NULL WHERE lease_until IS NOT NULL
