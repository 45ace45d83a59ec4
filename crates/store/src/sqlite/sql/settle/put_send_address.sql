-- What became of an address of a send that has several. One that is done with again, after a replay, has its new
-- outcome. Primary key.
INSERT INTO send_address (notification_id, channel, address, outcome, external_id, error, at)
VALUES (:notification_id, :channel, :address, :outcome, :external_id, :error, :at)
ON CONFLICT (notification_id, channel, address)
DO UPDATE SET outcome = excluded.outcome, external_id = excluded.external_id, error = excluded.error, at = excluded.at
