-- Claims new events by lane, up to the given lane, then by age. Uses the partial index event_outbox_new. Nothing is
-- locked: one engine owns the file.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.occurred_at,
       e.created_at, e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason
FROM event_outbox e
LEFT JOIN processed_event p ON p.event_id = e.event_id
LEFT JOIN event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NULL AND e.lane <= :lane
ORDER BY e.lane, e.id
LIMIT :limit
