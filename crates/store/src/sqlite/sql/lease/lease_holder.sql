-- Who holds a lease, and until when. Primary key.
SELECT holder, lease_until FROM lease WHERE name = :name
