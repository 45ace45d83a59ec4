-- The holder of a lease, and its end. Primary key.
SELECT holder, lease_until FROM lease WHERE name = :name
