-- Reads whether an event still has rows. Uses the unique index outbox_recipient.
SELECT 1 FROM outbox WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) LIMIT 1
