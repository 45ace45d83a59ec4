-- Records the id of an event that is being deleted. The record is never deleted. A failed event may still be retried.
-- Uses primary keys.
INSERT INTO campanile.processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, $2, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', campanile.now()
FROM campanile.event_outbox
WHERE id = $1
ON CONFLICT (event_id) DO NOTHING
