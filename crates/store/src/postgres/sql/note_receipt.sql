-- What a provider says of a message that it took: of the one that we know of, or of the only one there can be while we know of none,
-- since a callback may overtake our own record. It replaces what comes before it, and nothing else. The status stays. Primary key.
UPDATE campanile.send
SET receipt = $4, receipt_at = campanile.now(), external_id = $3
WHERE notification_id = $1 AND channel = $2
  AND (external_id IS NULL OR external_id = $3)
  AND (receipt IS NULL OR receipt = ANY ($5::text[]))
