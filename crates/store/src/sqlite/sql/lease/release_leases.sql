-- Run at start: this process holds the file's lock, so all holders are gone. A scan of a table with one row per lease
-- name.
DELETE FROM lease
