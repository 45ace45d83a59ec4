-- Which send sends an event to a shared address, if one has asked to, and its status. Primary keys.
SELECT p.notification_id, s.status
FROM campanile.send_once p
LEFT JOIN campanile.send s ON s.notification_id = p.notification_id AND s.channel = p.channel
WHERE p.event_id = $1 AND p.channel = $2 AND p.address_hash = $3
