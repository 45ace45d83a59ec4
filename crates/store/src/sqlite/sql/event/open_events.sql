-- Reads a page of events that are not closed: PUBLISHED events, and events whose fan-out has begun. Uses the partial
-- indexes event_outbox_open and event_outbox_continuing; the second holds few events. A scan by primary key would have
-- to skip all other events.
SELECT * FROM (SELECT id, event_id FROM event_outbox WHERE status = 'PUBLISHED' AND id > :after ORDER BY id
               LIMIT :limit)
UNION ALL
SELECT * FROM (SELECT id, event_id FROM event_outbox INDEXED BY event_outbox_continuing
               WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND id > :after ORDER BY id LIMIT :limit)
ORDER BY id
LIMIT :limit
