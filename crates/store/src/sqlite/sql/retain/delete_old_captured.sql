-- Deletes captured messages that are too old, from the oldest on. Primary key.
DELETE FROM captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM captured_message ORDER BY id LIMIT :limit) WHERE at < :before)
