-- Lists captured messages, in order. Uses the primary key.
SELECT id, event_id, user_type, user_id, channel, address, title, body, html, at
FROM campanile.captured_message
WHERE id > $1
ORDER BY id
LIMIT $2
