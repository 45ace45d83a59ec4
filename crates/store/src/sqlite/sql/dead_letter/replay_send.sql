-- A failed send has all its attempts ahead again, and may be deferred as long again. Primary key.
UPDATE send SET status = 'DUE', attempt_count = 0, deferred_since = NULL, deferrals = NULL, unanswered = NULL
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'
