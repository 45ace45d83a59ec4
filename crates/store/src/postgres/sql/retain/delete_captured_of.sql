-- Deletes captured messages of an event. Uses the index captured_message_event.
DELETE FROM campanile.captured_message
WHERE id IN (SELECT id FROM campanile.captured_message
             WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) LIMIT $2)
