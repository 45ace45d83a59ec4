-- Deletes captured messages that are too old, starting with the oldest. Uses the primary key.
DELETE FROM captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM captured_message ORDER BY id LIMIT :limit) WHERE at < :before)
