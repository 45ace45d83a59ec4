-- Remembers the id of an event that is deleted, for ever. A failed event may still be tried again. Primary keys.
INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, :body_hash, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', :now
FROM event_outbox
WHERE id = :id
ON CONFLICT (event_id) DO NOTHING
