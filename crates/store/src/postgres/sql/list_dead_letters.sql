-- Dead letters by age. Primary key; letters are few, so that they are filtered on the way.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM campanile.dead_letter
WHERE id > $1 AND id <= $2
  AND ($3 OR replayed_at IS NULL)
  AND ($4::text IS NULL OR stage = $4)
  AND ($5::text IS NULL OR channel = $5)
  AND ($6::text IS NULL OR provider = $6)
  AND ($7::text IS NULL OR reason = $7)
  AND ($8::text IS NULL OR strpos(error, $8) > 0)
  AND ($9::timestamptz IS NULL OR created_at <= $9)
ORDER BY id
LIMIT $10
