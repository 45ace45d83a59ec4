-- Writes outcomes if their claims still hold, and returns those that were written. A holder that has lost its claim
-- changes nothing. If the provider was not called, what is known of the previous attempt is kept. A receipt for a
-- message other than the one that was sent is removed. The attempt belongs to the instance that claimed the send, as
-- recorded by the claim. Uses the primary key. No index contains the changed columns, so this is a HOT update.
UPDATE campanile.send s
SET status = o.status, attempt_count = o.attempt_count, lease = NULL,
    external_id = coalesce(o.external_id, s.external_id),
    recipient_address = coalesce(o.recipient_address, s.recipient_address),
    sent_at = CASE WHEN o.status = 'SENT' THEN campanile.now() END,
    provider = CASE WHEN o.attempted THEN o.provider ELSE s.provider END,
    last_error = CASE WHEN o.attempted THEN o.last_error ELSE coalesce(o.last_error, s.last_error) END,
    receipt = CASE WHEN o.external_id <> s.external_id THEN NULL ELSE s.receipt END,
    receipt_at = CASE WHEN o.external_id <> s.external_id THEN NULL ELSE s.receipt_at END,
    attempted_at = o.attempted_at, settled_by = CASE WHEN o.attempted THEN $12 ELSE s.settled_by END
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::int[], $6::boolean[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::timestamptz[])
     AS o (notification_id, channel, lease, status, attempt_count, attempted, provider, external_id, last_error,
           recipient_address, attempted_at)
WHERE s.notification_id = o.notification_id AND s.channel = o.channel AND s.lease = o.lease AND s.status = 'SENDING'
RETURNING s.notification_id, s.channel, o.lease
