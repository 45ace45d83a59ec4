-- A failed send has all its attempts ahead again. Primary key.
UPDATE campanile.send SET status = 'DUE', attempt_count = 0
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'
