-- Deletes an event after everything that belongs to it has been deleted. Uses the primary key.
DELETE FROM event_outbox WHERE id = :id
