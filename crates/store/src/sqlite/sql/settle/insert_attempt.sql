-- Inserts every attempt except a success at the first attempt. The instance of the attempt is given, or is known from
-- the claim of its send, by primary key.
INSERT INTO send_attempt (notification_id, channel, at, provider, outcome, error, duration_ms, instance)
VALUES (:notification_id, :channel, :at, :provider, :outcome, :error, :duration_ms,
        coalesce(:instance, (SELECT s.attempted_by FROM send s
                             WHERE s.notification_id = :notification_id AND s.channel = :channel)))
