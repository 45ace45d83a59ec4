-- Releases the address claim of a send that failed, so that another recipient of the same event and address may try.
-- Uses the primary key.
DELETE FROM send_once
WHERE event_id = :event_id AND channel = :channel AND address_hash = :address_hash
  AND notification_id = :notification_id
