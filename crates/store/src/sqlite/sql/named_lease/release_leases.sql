-- Releases all leases at start. This process holds the file's lock, so all holders are gone. Scans a table with one row
-- per lease name.
DELETE FROM lease
