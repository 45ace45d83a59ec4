-- What a provider says of a message that it took: of the one that we know of, of the only one there can be while we
-- know of none, or of the one that is just being sent, since a callback may overtake our own record. It does not
-- replace what comes behind it. The status stays. Primary key.
UPDATE campanile.send
SET receipt = $4, receipt_at = campanile.now(), external_id = $3
WHERE notification_id = $1 AND channel = $2
  AND (external_id IS NULL OR external_id = $3 OR status = 'SENDING')
  AND (receipt IS NULL OR external_id <> $3 OR split_part(receipt, ' ', 1) <> ALL ($5::text[]))
