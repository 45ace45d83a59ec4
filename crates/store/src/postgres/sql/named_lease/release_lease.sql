-- Releases a lease if the given holder has it. Uses the primary key.
DELETE FROM campanile.lease WHERE name = $1 AND holder = $2
