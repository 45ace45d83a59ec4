-- Deletes the oldest changes, up to the last of them that is old enough. Uses the primary key.
DELETE FROM campanile.audit WHERE id <= (
    SELECT max(id) FROM (SELECT id, at FROM campanile.audit ORDER BY id LIMIT $2) AS oldest WHERE at < $1)
