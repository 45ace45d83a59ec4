-- Events that are not closed, in pages: PUBLISHED ones, and those whose fan-out has begun. Partial indexes
-- event_outbox_open and event_outbox_continuing, which holds few: by the primary key, all others would be passed.
SELECT * FROM (SELECT id, event_id FROM event_outbox WHERE status = 'PUBLISHED' AND id > :after ORDER BY id
               LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT id, event_id FROM event_outbox INDEXED BY event_outbox_continuing
               WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND id > :after ORDER BY id LIMIT :limit)
ORDER BY id
LIMIT :limit
