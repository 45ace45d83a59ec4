-- What is kept of such an event for ever. One that failed may be tried again, as it could before. Primary keys.
INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, :body_hash, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', :now
FROM event_outbox
WHERE id = :id
ON CONFLICT (event_id) DO NOTHING
