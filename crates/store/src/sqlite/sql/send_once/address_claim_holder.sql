-- Who posts an event to a webhook, if somebody asked to, and what became of that send. Primary keys.
SELECT p.notification_id, s.status
FROM send_once p
LEFT JOIN send s ON s.notification_id = p.notification_id AND s.channel = 'SLACK'
WHERE p.event_id = :event_id AND p.address_hash = :address_hash
