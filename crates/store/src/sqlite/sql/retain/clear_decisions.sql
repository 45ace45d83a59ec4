-- Clears the decisions of an event that is being deleted. Its id and hash are never deleted. Uses primary keys.
UPDATE processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) AND decisions IS NOT NULL
