-- Claims a shared address for an event, if no other send has claimed it. Only a send whose claim still holds may: one
-- that outlived its lease sends nothing, and must leave no row behind that others would wait for. The holder asks again
-- under each of its claims, and the row says under which it may have sent. Primary keys.
INSERT INTO send_once (event_id, channel, address_hash, notification_id, at, lease)
SELECT :event_id, s.channel, :address_hash, s.notification_id, :at, s.lease
FROM send s
WHERE s.notification_id = :notification_id AND s.channel = :channel AND s.status = 'SENDING' AND s.lease = :lease
ON CONFLICT (event_id, channel, address_hash) DO UPDATE SET lease = excluded.lease
WHERE send_once.notification_id = excluded.notification_id
