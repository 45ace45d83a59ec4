-- Every attempt that was not a first success.
INSERT INTO send_attempt (notification_id, channel, at, provider, outcome, error, duration_ms)
VALUES (:notification_id, :channel, :at, :provider, :outcome, :error, :duration_ms)
