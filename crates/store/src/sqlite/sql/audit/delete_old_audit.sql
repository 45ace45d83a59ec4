-- Deletes the oldest changes, up to the first that is young enough to stay. Uses the primary key.
DELETE FROM audit WHERE id IN (
    SELECT id FROM (SELECT id, at FROM audit ORDER BY id LIMIT :limit) WHERE at < :before)
