-- Reads the notifications of a page of recipients. Uses the unique index notification_recipient.
SELECT id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties, priority,
       shared_read, read_at, archived_at, created_at
FROM notification
WHERE event_id = :event_id
  AND (user_type, user_id) >= (:first_type, :first_id) AND (user_type, user_id) <= (:last_type, :last_id)
ORDER BY user_type, user_id
