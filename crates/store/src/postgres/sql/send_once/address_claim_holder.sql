-- Reads which send has claimed a shared address for an event, and its status. Uses primary keys.
SELECT p.notification_id, s.status
FROM campanile.send_once p
LEFT JOIN campanile.send s ON s.notification_id = p.notification_id AND s.channel = p.channel
WHERE p.event_id = $1 AND p.channel = $2 AND p.address_hash = $3
