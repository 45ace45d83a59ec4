-- Posts that failed: another recipient of the same event and webhook may try. Primary key.
DELETE FROM campanile.send_once p
USING unnest($1::text[], $2::text[], $3::uuid[]) AS n (event_id, address_hash, notification_id)
WHERE p.event_id = n.event_id AND p.address_hash = n.address_hash AND p.notification_id = n.notification_id
