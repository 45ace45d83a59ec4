-- Lists the captured messages of one event, in order. Uses the index captured_message_event.
SELECT id, event_id, user_type, user_id, channel, address, title, body, html, at
FROM captured_message
WHERE event_id = :event_id AND id > :after
ORDER BY id
LIMIT :limit
