-- Closes events whose every row was received or failed. An undelivered row stands near the end of the recipients' order
-- in which they were published, so the search goes backwards through outbox_recipient and ends at the first one. An
-- event that somebody else is closing is skipped. Unique index on event_id: the status is hidden from
-- event_outbox_open, which a planner without statistics would take for small and go through.
WITH complete AS (
    SELECT e.id
    FROM unnest($1::text[]) AS n (event_id)
    JOIN campanile.event_outbox e ON e.event_id = n.event_id AND e.status || '' = 'PUBLISHED'
    WHERE (SELECT 1
           FROM campanile.outbox o
           LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
           WHERE o.event_id = e.event_id AND o.status IS NULL AND s.channel IS NULL
           ORDER BY o.recipient_type DESC, o.recipient_id DESC, o.channel DESC
           LIMIT 1) IS NULL
    ORDER BY e.id
    FOR UPDATE OF e SKIP LOCKED)
UPDATE campanile.event_outbox e
SET status = 'PROCESSED', processed_at = campanile.now()
FROM complete
WHERE e.id = complete.id
