-- Reads the notifications of a page of recipients. Uses the unique index notification_recipient.
SELECT id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties, priority,
       shared_read, read_at, archived_at, created_at
FROM campanile.notification
WHERE event_id = $1 AND (user_type, user_id) >= ($2, $3) AND (user_type, user_id) <= ($4, $5)
ORDER BY user_type, user_id
