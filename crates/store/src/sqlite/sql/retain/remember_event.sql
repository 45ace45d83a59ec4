-- Records the id of an event that is being deleted. The record is never deleted. A failed event may still be retried.
-- Uses primary keys.
INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, :body_hash, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', :now
FROM event_outbox
WHERE id = :id
ON CONFLICT (event_id) DO NOTHING
