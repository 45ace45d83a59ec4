-- Reads a page of an event's recipients and returns its last user. Uses the unique index outbox_recipient.
SELECT recipient_type, recipient_id
FROM (SELECT DISTINCT recipient_type, recipient_id
      FROM outbox
      WHERE event_id = :event_id AND (recipient_type, recipient_id) >= (:first_type, :first_id)
      ORDER BY recipient_type, recipient_id
      LIMIT :limit)
ORDER BY recipient_type DESC, recipient_id DESC
LIMIT 1
