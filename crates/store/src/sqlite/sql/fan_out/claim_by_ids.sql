-- Claims the given events again, after a batch with them failed. Uses the primary key.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.occurred_at,
       e.created_at, e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason
FROM json_each(:ids) j
JOIN event_outbox e ON e.id = j.value
LEFT JOIN processed_event p ON p.event_id = e.event_id
LEFT JOIN event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING'
ORDER BY e.lane, e.id
