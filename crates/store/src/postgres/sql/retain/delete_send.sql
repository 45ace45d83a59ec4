-- Deletes old sends. Uses the primary key.
DELETE FROM campanile.send t
USING unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE t.notification_id = k.notification_id AND t.channel = k.channel
