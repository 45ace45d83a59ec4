-- What a provider says of a message that it took: of the one that we know of, or of the only one there can be while we know of none,
-- since a callback may overtake our own record. It replaces what comes before it, and nothing else. The status stays. Primary key.
UPDATE send
SET receipt = :receipt, receipt_at = :now, external_id = :external_id
WHERE notification_id = :notification_id AND channel = :channel
  AND (external_id IS NULL OR external_id = :external_id)
  AND (receipt IS NULL OR receipt IN (SELECT value FROM json_each(:replaces)))
