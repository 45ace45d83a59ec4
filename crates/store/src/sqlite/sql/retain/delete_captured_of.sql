-- Deletes captured messages of an event. Uses the index captured_message_event.
DELETE FROM captured_message
WHERE id IN (SELECT id FROM captured_message WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
             LIMIT :limit)
