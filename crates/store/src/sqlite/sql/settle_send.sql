-- Writes an outcome where the claim still holds; who lost it changes nothing. Primary key.
UPDATE send
SET status = :status, attempt_count = :attempt_count, lease = NULL, provider = :provider, external_id = :external_id,
    last_error = :last_error, sent_at = :sent_at
WHERE notification_id = :notification_id AND channel = :channel AND lease = :lease AND status = 'SENDING'
