-- Reads the finished rows of an event. Uses the unique index outbox_recipient, then the primary key. Unfinished rows
-- are skipped each time. They are few, because a send is settled long before it is old.
SELECT o.notification_id, o.channel
FROM outbox o
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
  AND (s.status IN ('SENT', 'FAILED', 'CANCELLED') OR s.status IS NULL AND o.status IS NOT NULL)
LIMIT :limit
