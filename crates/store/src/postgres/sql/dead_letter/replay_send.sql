-- Resets a failed send. It gets all its attempts again, and may be deferred for as long again. Uses the primary key.
UPDATE campanile.send SET status = 'DUE', attempt_count = 0, deferred_since = NULL, deferrals = NULL, unanswered = NULL
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'
