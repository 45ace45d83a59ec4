-- A lease that its holder gives back. Primary key.
DELETE FROM lease WHERE name = :name AND holder = :holder
