-- Clears the decisions of an event that is deleted; id and hash stay for ever. Primary keys.
UPDATE campanile.processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND decisions IS NOT NULL
