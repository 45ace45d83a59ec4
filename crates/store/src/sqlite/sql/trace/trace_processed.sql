-- What was decided. Primary key.
SELECT status, recipients, sends, counts, decisions, instance, created_at FROM processed_event
WHERE event_id = :event_id
