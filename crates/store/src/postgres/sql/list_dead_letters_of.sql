-- The dead letters of one event, by age. Index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM campanile.dead_letter
WHERE event_id = $9 AND id > $1
  AND ($2 OR replayed_at IS NULL)
  AND ($3::text IS NULL OR stage = $3)
  AND ($4::text IS NULL OR channel = $4)
  AND ($5::text IS NULL OR provider = $5)
  AND ($6::text IS NULL OR reason = $6)
  AND ($7::text IS NULL OR strpos(error, $7) > 0)
ORDER BY id
LIMIT $8
