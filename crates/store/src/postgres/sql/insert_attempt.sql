-- Every attempt that was not a first success.
INSERT INTO campanile.send_attempt (notification_id, channel, provider, outcome, error, duration_ms, at)
SELECT n.*, campanile.now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[]) AS n
