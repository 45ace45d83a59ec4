-- Deletes an event after everything that belongs to it has been deleted. Uses the primary key and event_search_type.
WITH gone AS (DELETE FROM campanile.event_outbox WHERE id = $1 RETURNING id, event_type)
DELETE FROM campanile.event_search s USING gone WHERE s.event_type = gone.event_type AND s.id = gone.id
