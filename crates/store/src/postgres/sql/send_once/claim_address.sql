-- Posting an event to a webhook is this send's, if nobody asked before, and while its claim holds: who slept past it
-- posts nothing, and must leave no row behind that others would wait for. The one whose it is asks again under each of
-- its claims, and the row says under which it may have posted. Primary keys.
INSERT INTO campanile.send_once (event_id, address_hash, notification_id, at, lease)
SELECT $1, $2, s.notification_id, campanile.now(), s.lease
FROM campanile.send s
WHERE s.notification_id = $3 AND s.channel = 'SLACK' AND s.status = 'SENDING' AND s.lease = $4
ON CONFLICT (event_id, address_hash) DO UPDATE SET lease = excluded.lease
WHERE send_once.notification_id = excluded.notification_id
