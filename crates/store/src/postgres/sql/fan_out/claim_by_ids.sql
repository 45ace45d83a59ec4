-- Claims the given events again, after a batch with them failed. Uses the primary key. Events that another claim holds
-- are skipped.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at,
       e.created_at, e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason,
       campanile.now() AS now
FROM unnest($1::bigint[]) AS j (id)
JOIN campanile.event_outbox e ON e.id = j.id
LEFT JOIN campanile.processed_event p ON p.event_id = e.event_id
LEFT JOIN campanile.event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING'
ORDER BY e.lane, e.id
FOR UPDATE OF e SKIP LOCKED
