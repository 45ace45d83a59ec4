-- Checks whether a send may have sent to a shared address under a claim. Uses the primary key.
SELECT count(*) AS claims FROM campanile.send_once
WHERE event_id = $1 AND channel = $2 AND address_hash = $3
  AND notification_id = $4 AND lease = $5
