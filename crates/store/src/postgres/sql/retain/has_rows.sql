-- Reads whether an event still has rows. Uses the unique index outbox_recipient.
SELECT FROM campanile.outbox WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) LIMIT 1
