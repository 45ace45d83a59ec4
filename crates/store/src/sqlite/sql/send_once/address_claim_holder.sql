-- Which send sends an event to a shared address, if one has asked to, and its status. Primary keys.
SELECT p.notification_id, s.status
FROM send_once p
LEFT JOIN send s ON s.notification_id = p.notification_id AND s.channel = p.channel
WHERE p.event_id = :event_id AND p.channel = :channel AND p.address_hash = :address_hash
