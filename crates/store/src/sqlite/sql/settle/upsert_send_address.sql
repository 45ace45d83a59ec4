-- Writes the outcome of an address of a send that has several addresses. An address that is finished again after a
-- replay gets its new outcome. Uses the primary key.
INSERT INTO send_address (notification_id, channel, address, outcome, external_id, error, at)
VALUES (:notification_id, :channel, :address, :outcome, :external_id, :error, :at)
ON CONFLICT (notification_id, channel, address)
DO UPDATE SET outcome = excluded.outcome, external_id = excluded.external_id, error = excluded.error, at = excluded.at
