-- Sends that were in doubt before there was a place for them. A migration of its own: it looks at every send, and the one before
-- keeps everybody from changing one until it is committed.
INSERT INTO campanile.send_doubt (since, notification_id, channel)
SELECT coalesce((SELECT max(a.at) FROM campanile.send_attempt a
                 WHERE a.notification_id = s.notification_id AND a.channel = s.channel), s.created_at),
       s.notification_id, s.channel
FROM campanile.send s
WHERE s.status = 'IN_DOUBT'
ON CONFLICT DO NOTHING;
