-- Deletes old outbox rows, after their sends. Uses the primary key.
DELETE FROM campanile.outbox t
USING unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE t.notification_id = k.notification_id AND t.channel = k.channel
