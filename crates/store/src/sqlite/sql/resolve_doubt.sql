-- What a person decided about a send in doubt. One that goes out again keeps what is known of the attempts before. Primary key.
UPDATE send
SET status = :status, sent_at = :sent_at, last_error = CASE WHEN :status = 'DUE' THEN last_error ELSE :last_error END,
    settled_by = :instance
WHERE notification_id = :notification_id AND channel = :channel AND status = 'IN_DOUBT'
