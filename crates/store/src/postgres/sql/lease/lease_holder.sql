-- The holder of a lease, and the seconds that are left. Primary key.
SELECT holder, extract(epoch FROM lease_until - campanile.now())::float8 AS remaining FROM campanile.lease
WHERE name = $1
