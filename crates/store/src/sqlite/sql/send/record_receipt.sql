-- What a provider says of a message that it took: of the one that we know of, of the only one there can be while we
-- know of none, or of the one that is just being sent, since a callback may overtake our own record. It does not
-- replace what comes behind it. The status stays. Primary key.
UPDATE send
SET receipt = :receipt, receipt_at = :now, external_id = :external_id
WHERE notification_id = :notification_id AND channel = :channel
  AND (external_id IS NULL OR external_id = :external_id OR status = 'SENDING')
  AND (receipt IS NULL OR external_id <> :external_id
       OR substr(receipt, 1, instr(receipt || ' ', ' ') - 1) NOT IN (SELECT value FROM json_each(:later_receipts)))
