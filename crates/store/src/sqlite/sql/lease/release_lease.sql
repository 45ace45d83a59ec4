-- Releases a lease of this holder. Primary key.
DELETE FROM lease WHERE name = :name AND holder = :holder
