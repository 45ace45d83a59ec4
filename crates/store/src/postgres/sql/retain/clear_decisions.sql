-- Clears the decisions of an event that is being deleted. Its id and hash are never deleted. Uses primary keys.
UPDATE campanile.processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND decisions IS NOT NULL
