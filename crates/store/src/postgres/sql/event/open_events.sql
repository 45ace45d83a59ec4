-- Events that are not closed, in pages: PUBLISHED ones, and those whose fan-out has begun. Partial indexes
-- event_outbox_open and event_outbox_continuing, which holds few.
(SELECT id, event_id FROM campanile.event_outbox WHERE status = 'PUBLISHED' AND id > $1 ORDER BY id LIMIT $2)
UNION ALL
(SELECT id, event_id FROM campanile.event_outbox WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND id > $1
 ORDER BY id LIMIT $2)
ORDER BY id
LIMIT $2
