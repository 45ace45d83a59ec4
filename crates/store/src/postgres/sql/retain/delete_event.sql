-- Deletes an event of which nothing else is left. Primary key.
DELETE FROM campanile.event_outbox WHERE id = $1
