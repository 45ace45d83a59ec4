-- Writes an outcome where the claim still holds; who lost it changes nothing. Where the provider was not asked, what is known
-- of the attempt before stays. Primary key.
UPDATE send
SET status = :status, attempt_count = :attempt_count, lease = NULL, external_id = :external_id, sent_at = :sent_at,
    provider = CASE WHEN :attempted THEN :provider ELSE provider END,
    last_error = CASE WHEN :attempted THEN :last_error ELSE coalesce(:last_error, last_error) END
WHERE notification_id = :notification_id AND channel = :channel AND lease = :lease AND status = 'SENDING'
