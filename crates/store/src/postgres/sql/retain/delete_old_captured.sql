-- Deletes captured messages that are too old, starting with the oldest. Uses the primary key.
DELETE FROM campanile.captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM campanile.captured_message ORDER BY id LIMIT $2) first
             WHERE at < $1::timestamptz)
