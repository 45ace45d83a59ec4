-- Reads the decisions about an event. Uses the primary key.
SELECT status, recipients, sends, counts, decisions, instance, created_at FROM campanile.processed_event
WHERE event_id = $1
