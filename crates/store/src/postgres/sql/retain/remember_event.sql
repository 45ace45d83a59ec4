-- What is kept of such an event for ever. One that failed may be tried again, as it could before. Primary keys.
INSERT INTO campanile.processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, $2, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', campanile.now()
FROM campanile.event_outbox
WHERE id = $1
ON CONFLICT (event_id) DO NOTHING
