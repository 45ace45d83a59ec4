-- The stored events with these ids, to compare their bodies with new ones. Unique index on event_id.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at,
       e.created_at
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.event_outbox e ON e.event_id = n.event_id
