-- Inserts every attempt except a success at the first attempt. The instance of the attempt is given, or is known from
-- the claim of its send, by primary key.
INSERT INTO campanile.send_attempt (notification_id, channel, provider, outcome, error, duration_ms, at, instance)
SELECT n.*, campanile.now(),
       coalesce($7::int, (SELECT s.attempted_by FROM campanile.send s
                          WHERE s.notification_id = n.notification_id AND s.channel = n.channel))
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
     AS n (notification_id, channel, provider, outcome, error, duration_ms)
