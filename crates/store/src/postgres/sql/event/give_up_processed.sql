-- What was begun and given up: done where some were told, and to be redone where nobody was; without that a replay
-- would take the event for done. Primary keys.
UPDATE campanile.processed_event
SET status = CASE WHEN recipients > 0 THEN 'SUCCESS' ELSE 'FAILED' END
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND status = 'PROCESSING'
