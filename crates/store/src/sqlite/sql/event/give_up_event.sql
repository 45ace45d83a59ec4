-- Gives up an event that can't be fanned out. With rows it is PUBLISHED, and the rows are delivered. Without rows it is
-- FAILED until a replay. Primary keys.
UPDATE event_outbox
SET (status, published_at) = (
        SELECT CASE WHEN count(*) > 0 THEN 'PUBLISHED' ELSE 'FAILED' END,
               CASE WHEN count(*) > 0 THEN :now ELSE event_outbox.published_at END
        FROM processed_event p
        WHERE p.event_id = event_outbox.event_id AND p.status = 'PROCESSING' AND p.recipients > 0),
    last_error = :error, fan_out_cursor = NULL
WHERE id = :id AND status = 'PENDING'
