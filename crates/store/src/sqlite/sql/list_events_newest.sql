-- Events, the newest first. Primary key; filters are applied on the way.
SELECT id, event_id, event_type, aggregate_type, aggregate_id, priority, status, retry_count, last_error, occurred_at, created_at,
       published_at, processed_at
FROM event_outbox
WHERE id < :after AND (:status IS NULL OR status = :status) AND (:event_type IS NULL OR event_type = :event_type)
ORDER BY id DESC
LIMIT :limit
