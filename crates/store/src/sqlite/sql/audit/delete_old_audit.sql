-- Deletes the oldest changes, up to the last of them that is old enough. Uses the primary key.
DELETE FROM audit WHERE id <= (
    SELECT max(id) FROM (SELECT id, at FROM audit ORDER BY id LIMIT :limit) WHERE at < :before)
