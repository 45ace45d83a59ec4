-- Writes an outcome if its claim still holds. A holder that has lost its claim changes nothing. If the provider was not
-- called, what is known of the previous attempt is kept. A receipt for a message other than the one that was sent is
-- removed. The attempt belongs to the instance that claimed the send, as recorded by the claim. Uses the primary key.
UPDATE send
SET status = :status, attempt_count = :attempt_count, lease = NULL, external_id = coalesce(:external_id, external_id),
    recipient_address = coalesce(:recipient_address, recipient_address), sent_at = :sent_at,
    provider = CASE WHEN :attempted THEN :provider ELSE provider END,
    last_error = CASE WHEN :attempted THEN :last_error ELSE coalesce(:last_error, last_error) END,
    receipt = CASE WHEN :external_id <> external_id THEN NULL ELSE receipt END,
    receipt_at = CASE WHEN :external_id <> external_id THEN NULL ELSE receipt_at END,
    attempted_at = :attempted_at, settled_by = CASE WHEN :attempted THEN :instance ELSE settled_by END
WHERE notification_id = :notification_id AND channel = :channel AND lease = :lease AND status = 'SENDING'
