-- Releases chunks. If a number of seconds is given, the chunks wait that long. Uses the primary key.
UPDATE campanile.publish_chunk SET lease_until = campanile.now() + make_interval(secs => $2::float8)
WHERE id = ANY ($1::bigint[])
