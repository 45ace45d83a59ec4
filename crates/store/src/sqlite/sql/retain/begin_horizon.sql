-- Stores the first horizon: the arrival of the oldest event that may be deleted, else of the oldest row. Does not use
-- the clock, because it may be wrong. Stores nothing while there are no rows. Uses the primary key of event_outbox and
-- the index dead_letter_event.
INSERT INTO retain_horizon (id, horizon, version)
SELECT 1, oldest.at, 0
FROM (SELECT COALESCE(
           (SELECT created_at FROM (SELECT id, created_at, status FROM event_outbox ORDER BY id LIMIT 1000) first
            WHERE status IN ('PROCESSED', 'FAILED', 'CANCELLED') ORDER BY id LIMIT 1),
           (SELECT created_at FROM event_outbox ORDER BY id LIMIT 1),
           (SELECT created_at FROM dead_letter WHERE event_id IS NULL ORDER BY id LIMIT 1)) AS at) oldest
WHERE oldest.at IS NOT NULL
ON CONFLICT (id) DO NOTHING
