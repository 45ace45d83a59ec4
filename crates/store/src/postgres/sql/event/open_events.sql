-- Reads a page of events that are not closed: PUBLISHED events, and events whose fan-out has begun. Uses the partial
-- indexes event_outbox_open and event_outbox_continuing; the second holds few events.
(SELECT id, event_id FROM campanile.event_outbox WHERE status = 'PUBLISHED' AND id > $1 ORDER BY id LIMIT $2)
UNION ALL
(SELECT id, event_id FROM campanile.event_outbox WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND id > $1
 ORDER BY id LIMIT $2)
ORDER BY id
LIMIT $2
