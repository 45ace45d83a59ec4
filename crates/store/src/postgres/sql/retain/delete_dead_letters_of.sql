-- Deletes dead letters of an event. Uses the index dead_letter_event.
DELETE FROM campanile.dead_letter
WHERE id IN (SELECT id FROM campanile.dead_letter
             WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) LIMIT $2)
