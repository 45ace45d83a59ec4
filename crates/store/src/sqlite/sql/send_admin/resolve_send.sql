-- What a person decided about a send in doubt. One that goes out again keeps what is known of the attempts before,
-- and may be deferred as long again. Primary key.
UPDATE send
SET status = :status, sent_at = :sent_at, last_error = CASE WHEN :status = 'DUE' THEN last_error ELSE :last_error END,
    settled_by = :instance, deferred_since = CASE WHEN :status <> 'DUE' THEN deferred_since END,
    deferrals = CASE WHEN :status <> 'DUE' THEN deferrals END
WHERE notification_id = :notification_id AND channel = :channel AND status = 'IN_DOUBT'
