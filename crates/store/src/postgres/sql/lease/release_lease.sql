-- Releases a lease of this holder. Primary key.
DELETE FROM campanile.lease WHERE name = $1 AND holder = $2
