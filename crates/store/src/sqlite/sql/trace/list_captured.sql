-- Lists captured messages, in order. Uses the primary key.
SELECT id, event_id, user_type, user_id, channel, address, title, body, html, at
FROM captured_message
WHERE id > :after
ORDER BY id
LIMIT :limit
