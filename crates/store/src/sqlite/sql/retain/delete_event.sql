-- Deletes an event of which nothing else is left. Primary key.
DELETE FROM event_outbox WHERE id = :id
