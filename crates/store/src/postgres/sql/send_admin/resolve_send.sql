-- Writes the decision of an operator about a send in doubt. A send that is sent again keeps what is known of its
-- earlier attempts, and may be deferred for as long again. Uses the primary key.
UPDATE campanile.send
SET status = $3, sent_at = CASE WHEN $3 = 'SENT' THEN campanile.now() END,
    last_error = CASE WHEN $3 = 'DUE' THEN last_error ELSE $4 END, settled_by = $5,
    deferred_since = CASE WHEN $3 <> 'DUE' THEN deferred_since END, deferrals = CASE WHEN $3 <> 'DUE' THEN deferrals END
WHERE notification_id = $1 AND channel = $2 AND status = 'IN_DOUBT'
