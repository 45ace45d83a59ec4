-- Whether a send may have posted under a claim. Of a row that an earlier release wrote it is not known, so it may. Primary key.
SELECT count(*) AS posted FROM campanile.event_post
WHERE event_id = $1 AND address_hash = $2 AND notification_id = $3 AND (lease IS NULL OR lease = $4)
