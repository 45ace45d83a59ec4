-- Reads the outbox rows of a page of recipients. Uses the unique index outbox_recipient.
SELECT *
FROM notification_outbox
WHERE event_id = :event_id
  AND (recipient_type, recipient_id) >= (:first_type, :first_id)
  AND (recipient_type, recipient_id) <= (:last_type, :last_id)
ORDER BY recipient_type, recipient_id, channel
