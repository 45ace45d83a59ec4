-- Posting an event to a webhook is this send's, if nobody asked before, and while its claim holds: who slept past it posts nothing, and
-- must leave no row behind that others would wait for. Primary keys.
INSERT INTO event_post (event_id, address_hash, notification_id, at)
SELECT :event_id, :address_hash, s.notification_id, :at
FROM send s
WHERE s.notification_id = :notification_id AND s.channel = 'SLACK' AND s.status = 'SENDING' AND s.lease = :lease
ON CONFLICT (event_id, address_hash) DO NOTHING
