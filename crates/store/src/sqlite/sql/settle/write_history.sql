-- Writes the deferrals and unanswered messages of a send, right after its outcome and in the same transaction. Most
-- sends have none, and then this statement is not run. Uses the primary key.
UPDATE send SET deferred_since = :deferred_since, deferrals = :deferrals, unanswered = :unanswered
WHERE notification_id = :notification_id AND channel = :channel
