-- Whether a send may have posted under a claim. Primary key.
SELECT count(*) AS claims FROM campanile.send_once
WHERE event_id = $1 AND address_hash = $2 AND notification_id = $3 AND lease = $4
