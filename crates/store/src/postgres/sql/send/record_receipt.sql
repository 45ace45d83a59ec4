-- Records what a provider reports about a message that it accepted. The report is for the message that we know, or for
-- the only possible message if we know none. It may also be for the message that is being sent, since a callback may
-- arrive before our own record. A report does not replace a later one. The status does not change. Uses the primary
-- key.
UPDATE campanile.send
SET receipt = $4, receipt_at = campanile.now(), external_id = $3
WHERE notification_id = $1 AND channel = $2
  AND (external_id IS NULL OR external_id = $3 OR status = 'SENDING')
  AND (receipt IS NULL OR external_id <> $3 OR split_part(receipt, ' ', 1) <> ALL ($5::text[]))
