-- Records what a provider reports about a message that it accepted. The report is for the message that we know, or for
-- the only possible message if we know none. It may also be for the message that is being sent, since a callback may
-- arrive before our own record. A report does not replace a later one. The status does not change. Uses the primary
-- key.
UPDATE send
SET receipt = :receipt, receipt_at = :now, external_id = :external_id
WHERE notification_id = :notification_id AND channel = :channel
  AND (external_id IS NULL OR external_id = :external_id OR status = 'SENDING')
  AND (receipt IS NULL OR external_id <> :external_id
       OR substr(receipt, 1, instr(receipt || ' ', ' ') - 1) NOT IN (SELECT value FROM json_each(:later_receipts)))
