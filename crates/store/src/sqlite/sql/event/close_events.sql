-- Closes events whose rows were all received or have failed. Rows are published in the order of recipients, so an
-- undelivered row is near the end. The search goes backwards through outbox_recipient and ends at the first such row.
UPDATE event_outbox
SET status = 'PROCESSED', processed_at = :now
WHERE event_id IN (SELECT value FROM json_each(:event_ids))
  AND status = 'PUBLISHED'
  AND (SELECT 1
       FROM outbox o
       LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
       WHERE o.event_id = event_outbox.event_id AND o.status IS NULL AND s.channel IS NULL
       ORDER BY o.recipient_type DESC, o.recipient_id DESC, o.channel DESC
       LIMIT 1) IS NULL
