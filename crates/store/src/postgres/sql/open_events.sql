-- Events that wait to be closed, in pages. Partial index event_outbox_open.
SELECT id, event_id FROM campanile.event_outbox WHERE status = 'PUBLISHED' AND id > $1 ORDER BY id LIMIT $2
