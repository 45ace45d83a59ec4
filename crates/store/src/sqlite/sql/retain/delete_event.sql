-- An event that nothing else is left of. Primary key.
DELETE FROM event_outbox WHERE id = :id
