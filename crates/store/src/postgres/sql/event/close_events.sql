-- Closes events whose rows were all received or have failed. Rows are published in the order of recipients, so an
-- undelivered row is near the end. The search goes backwards through outbox_recipient and ends at the first such row.
-- Events that another instance is closing are skipped. Uses the unique index on event_id. The condition on the status
-- is written so that it does not match event_outbox_open. A planner without statistics would assume that this index is
-- small, and would scan it.
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
