-- Gives up an event that cannot be fanned out. An event with rows becomes PUBLISHED, and its rows are delivered. An
-- event without rows becomes FAILED, until a replay. Uses primary keys.
UPDATE campanile.event_outbox e
SET status = CASE WHEN progress.begun THEN 'PUBLISHED' ELSE 'FAILED' END,
    published_at = CASE WHEN progress.begun THEN campanile.now() ELSE e.published_at END,
    last_error = $2, fan_out_cursor = NULL
FROM (SELECT EXISTS (SELECT FROM campanile.event_outbox o
                     JOIN campanile.processed_event p ON p.event_id = o.event_id
                     WHERE o.id = $1 AND p.status = 'PROCESSING' AND p.recipients > 0) AS begun) progress
WHERE e.id = $1 AND e.status = 'PENDING'
