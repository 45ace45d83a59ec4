-- Who holds a lease, and for how many seconds. Primary key.
SELECT holder, extract(epoch FROM lease_until - campanile.now())::float8 AS remaining FROM campanile.lease
WHERE name = $1
