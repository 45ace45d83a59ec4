-- Releases chunks, which wait for this many seconds if they are given. Primary key.
UPDATE campanile.publish_chunk SET lease_until = campanile.now() + make_interval(secs => $2::float8)
WHERE id = ANY ($1::bigint[])
