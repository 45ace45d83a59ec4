-- Reads the holder of a lease, and the remaining seconds. Uses the primary key.
SELECT holder, extract(epoch FROM lease_until - campanile.now())::float8 AS remaining FROM campanile.lease
WHERE name = $1
