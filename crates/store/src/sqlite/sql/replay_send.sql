-- A failed send has all its attempts ahead again. Primary key.
UPDATE send SET status = 'DUE', attempt_count = 0
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'
