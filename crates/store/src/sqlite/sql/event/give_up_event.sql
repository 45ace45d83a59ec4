-- Gives up an event that cannot be fanned out. An event with rows becomes PUBLISHED, and its rows are delivered. An
-- event without rows becomes FAILED, until a replay. Uses primary keys.
UPDATE event_outbox
SET (status, published_at) = (
        SELECT CASE WHEN count(*) > 0 THEN 'PUBLISHED' ELSE 'FAILED' END,
               CASE WHEN count(*) > 0 THEN :now ELSE event_outbox.published_at END
        FROM processed_event p
        WHERE p.event_id = event_outbox.event_id AND p.status = 'PROCESSING' AND p.recipients > 0),
    last_error = :error, fan_out_cursor = NULL
WHERE id = :id AND status = 'PENDING'
