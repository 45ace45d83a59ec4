-- Captured messages that are older than what is kept: those among the first, which are the oldest. Primary key.
DELETE FROM campanile.captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM campanile.captured_message ORDER BY id LIMIT $2) first
             WHERE at < $1::timestamptz)
