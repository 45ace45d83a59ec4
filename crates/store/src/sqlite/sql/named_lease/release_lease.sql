-- Releases a lease if the given holder has it. Uses the primary key.
DELETE FROM lease WHERE name = :name AND holder = :holder
