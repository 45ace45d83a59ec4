-- The outbox rows of a page of recipients. Unique index outbox_recipient.
SELECT *
FROM campanile.notification_outbox
WHERE event_id = $1 AND (recipient_type, recipient_id) >= ($2, $3) AND (recipient_type, recipient_id) <= ($4, $5)
ORDER BY recipient_type, recipient_id, channel
