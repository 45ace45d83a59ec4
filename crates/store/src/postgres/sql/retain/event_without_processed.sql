-- Reads an event that has no processed record, such as one that was given up at once. Uses primary keys.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at,
       e.created_at
FROM campanile.event_outbox e
WHERE e.id = $1 AND NOT EXISTS (SELECT FROM campanile.processed_event p WHERE p.event_id = e.event_id)
