-- A post that failed: another recipient of the same event and webhook may try. Primary key.
DELETE FROM send_once
WHERE event_id = :event_id AND address_hash = :address_hash AND notification_id = :notification_id
