-- What a person decided about a send in doubt. One that goes out again keeps what is known of the attempts before,
-- and may be deferred as long again. Primary key.
UPDATE campanile.send
SET status = $3, sent_at = CASE WHEN $3 = 'SENT' THEN campanile.now() END,
    last_error = CASE WHEN $3 = 'DUE' THEN last_error ELSE $4 END, settled_by = $5,
    deferred_since = CASE WHEN $3 <> 'DUE' THEN deferred_since END, deferrals = CASE WHEN $3 <> 'DUE' THEN deferrals END
WHERE notification_id = $1 AND channel = $2 AND status = 'IN_DOUBT'
