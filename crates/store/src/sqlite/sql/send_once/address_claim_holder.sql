-- Reads which send has claimed a shared address for an event, and its status. Uses primary keys.
SELECT p.notification_id, s.status
FROM send_once p
LEFT JOIN send s ON s.notification_id = p.notification_id AND s.channel = p.channel
WHERE p.event_id = :event_id AND p.channel = :channel AND p.address_hash = :address_hash
