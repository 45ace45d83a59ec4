-- Reads the outbox rows of a page of recipients. Uses the unique index outbox_recipient.
SELECT id, event_id, recipient_type, recipient_id, channel, title, body, recipient_address, priority, available_at,
       status, retry_count, last_error, created_at, notification_id, audience, entity_type, entity_id, shared_read
FROM campanile.notification_outbox
WHERE event_id = $1 AND (recipient_type, recipient_id) >= ($2, $3) AND (recipient_type, recipient_id) <= ($4, $5)
ORDER BY recipient_type, recipient_id, channel
