-- Reads the holder of a lease, and when the lease ends. Uses the primary key.
SELECT holder, lease_until FROM lease WHERE name = :name
