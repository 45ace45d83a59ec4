-- Lists the captured messages of one event, in order. Uses the index captured_message_event.
SELECT id, event_id, user_type, user_id, channel, address, title, body, html, at
FROM campanile.captured_message
WHERE event_id = $1 AND id > $2
ORDER BY id
LIMIT $3
