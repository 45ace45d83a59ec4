-- Claims a shared address for an event, if no other send has claimed it and this send's own claim still holds. A send
-- that outlived its lease sends nothing, and must leave no row behind for which others would wait. The holder claims
-- the address again under each of its claims. The row says under which claim it may have sent. Uses primary keys.
INSERT INTO campanile.send_once (event_id, channel, address_hash, notification_id, at, lease)
SELECT $1, s.channel, $3, s.notification_id, campanile.now(), s.lease
FROM campanile.send s
WHERE s.notification_id = $4 AND s.channel = $2 AND s.status = 'SENDING' AND s.lease = $5
ON CONFLICT (event_id, channel, address_hash) DO UPDATE SET lease = excluded.lease
WHERE send_once.notification_id = excluded.notification_id
