-- What is remembered of an event that was given up: SUCCESS if rows were written, else FAILED, so that a replay does
-- not take the event for known. Primary keys.
UPDATE campanile.processed_event
SET status = CASE WHEN recipients > 0 THEN 'SUCCESS' ELSE 'FAILED' END
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND status = 'PROCESSING'
