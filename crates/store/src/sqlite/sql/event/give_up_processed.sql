-- Records the result of an event that was given up. It is SUCCESS if rows were written, else FAILED, so that a replay
-- does not treat the event as already known. Uses primary keys.
UPDATE processed_event
SET status = CASE WHEN recipients > 0 THEN 'SUCCESS' ELSE 'FAILED' END
WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) AND status = 'PROCESSING'
