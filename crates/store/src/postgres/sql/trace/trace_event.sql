-- Reads the event of a trace. Uses the unique index on event_id.
SELECT e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text AS payload, e.priority, e.status,
       e.retry_count, e.last_error, e.occurred_at, e.created_at, e.published_at, e.processed_at
FROM campanile.event_outbox e
WHERE e.event_id = $1
