-- What was captured, in order. Primary key.
SELECT id, event_id, user_type, user_id, channel, address, title, body, html, at
FROM campanile.captured_message
WHERE id > $1
ORDER BY id
LIMIT $2
