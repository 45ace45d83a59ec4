-- A failed send has all its attempts ahead again, and may be deferred as long again. Primary key.
UPDATE campanile.send SET status = 'DUE', attempt_count = 0, deferred_since = NULL, deferrals = NULL, unanswered = NULL
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'
