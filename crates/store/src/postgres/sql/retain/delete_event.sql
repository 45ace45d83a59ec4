-- An event that nothing else is left of. Primary key.
DELETE FROM campanile.event_outbox WHERE id = $1
