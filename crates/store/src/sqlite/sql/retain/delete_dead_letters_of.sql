-- Deletes dead letters of an event. Uses the index dead_letter_event.
DELETE FROM dead_letter
WHERE id IN (SELECT id FROM dead_letter WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
             LIMIT :limit)
