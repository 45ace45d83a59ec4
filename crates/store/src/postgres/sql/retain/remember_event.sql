-- Remembers the id of an event that is deleted, for ever. A failed event may still be tried again. Primary keys.
INSERT INTO campanile.processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, $2, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', campanile.now()
FROM campanile.event_outbox
WHERE id = $1
ON CONFLICT (event_id) DO NOTHING
