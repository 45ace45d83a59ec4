-- Deletes the oldest changes, up to the first that is young enough to stay. Uses the primary key.
DELETE FROM campanile.audit WHERE id IN (
    SELECT id FROM (SELECT id, at FROM campanile.audit ORDER BY id LIMIT $2) AS oldest WHERE at < $1)
