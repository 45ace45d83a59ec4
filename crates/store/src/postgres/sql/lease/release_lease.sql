-- A lease that its holder gives back. Primary key.
DELETE FROM campanile.lease WHERE name = $1 AND holder = $2
