-- Releases the address claims of sends that failed, so that another recipient of the same event and address may try.
-- Uses the primary key.
DELETE FROM campanile.send_once p
USING unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) AS n (event_id, channel, address_hash, notification_id)
WHERE p.event_id = n.event_id AND p.channel = n.channel AND p.address_hash = n.address_hash
  AND p.notification_id = n.notification_id
