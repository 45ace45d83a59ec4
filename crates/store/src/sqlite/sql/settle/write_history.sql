-- Deferrals and unanswered messages of a send, right after its outcome in the same transaction. Most sends have none,
-- and this is not run. Primary key.
UPDATE send SET deferred_since = :deferred_since, deferrals = :deferrals, unanswered = :unanswered
WHERE notification_id = :notification_id AND channel = :channel
