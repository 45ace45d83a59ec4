-- Deletes an event after everything that belongs to it has been deleted. Uses the primary key.
DELETE FROM campanile.event_outbox WHERE id = $1
