-- Inserts a dead letter, for something that is not retried automatically.
INSERT INTO dead_letter (stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message,
                         created_at)
VALUES (:stage, :event_id, :recipient_type, :recipient_id, :channel, :provider, :reason, :error, :message, :now)
