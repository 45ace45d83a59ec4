-- Checks whether a send may have sent to a shared address under a claim. Uses the primary key.
SELECT count(*) AS claims FROM send_once
WHERE event_id = :event_id AND channel = :channel AND address_hash = :address_hash
  AND notification_id = :notification_id AND lease = :lease
