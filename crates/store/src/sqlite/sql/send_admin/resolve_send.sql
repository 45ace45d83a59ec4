-- Writes the decision of an operator about a send in doubt. A send that is sent again keeps what is known of its
-- earlier attempts, and may be deferred for as long again. Uses the primary key.
UPDATE send
SET status = :status, sent_at = :sent_at, last_error = CASE WHEN :status = 'DUE' THEN last_error ELSE :last_error END,
    settled_by = :instance, deferred_since = CASE WHEN :status <> 'DUE' THEN deferred_since END,
    deferrals = CASE WHEN :status <> 'DUE' THEN deferrals END
WHERE notification_id = :notification_id AND channel = :channel AND status = 'IN_DOUBT'
