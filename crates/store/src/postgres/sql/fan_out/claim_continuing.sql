-- Claims the next large event whose fan-out has begun: by lane, up to the given lane, then in rotation after the last
-- event claimed. Uses the partial index event_outbox_continuing, which holds few events. Events that another claim
-- holds are skipped.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at,
       e.created_at, e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason,
       campanile.now() AS now
FROM campanile.event_outbox e
LEFT JOIN campanile.processed_event p ON p.event_id = e.event_id
LEFT JOIN campanile.event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NOT NULL AND e.lane <= $2
ORDER BY e.lane, e.id <= $1, e.id
LIMIT 1
FOR UPDATE OF e SKIP LOCKED
