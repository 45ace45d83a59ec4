-- Captured messages that are older than what is kept: those among the first, which are the oldest. Primary key.
DELETE FROM captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM captured_message ORDER BY id LIMIT :limit) WHERE at < :before)
