-- Events that wait to be closed, in pages. Partial index event_outbox_open.
SELECT id, event_id FROM event_outbox WHERE status = 'PUBLISHED' AND id > :after ORDER BY id LIMIT :limit
