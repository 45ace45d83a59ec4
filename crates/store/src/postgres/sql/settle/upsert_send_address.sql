-- Writes the outcomes of addresses of sends that have several addresses. An address that is finished again after a
-- replay gets its new outcome. Uses the primary key.
INSERT INTO campanile.send_address (notification_id, channel, address, outcome, external_id, error, at)
SELECT n.*, campanile.now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS n
ON CONFLICT (notification_id, channel, address)
DO UPDATE SET outcome = excluded.outcome, external_id = excluded.external_id, error = excluded.error, at = excluded.at
