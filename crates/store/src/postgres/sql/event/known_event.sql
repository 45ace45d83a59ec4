-- Reads the stored events with the given ids, to compare their bodies with those of new events. Uses the unique index
-- on event_id.
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at,
       e.created_at
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.event_outbox e ON e.event_id = n.event_id
