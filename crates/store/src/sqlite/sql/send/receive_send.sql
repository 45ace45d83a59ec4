-- Inserts a send with the status that the domain decided. If a message is redelivered, its send exists already. Uses
-- the primary key.
INSERT INTO send (notification_id, channel, recipient_address, status, attempt_count, lease, provider, created_at,
                  sent_at, published_at, published_by, received_by, attempted_at, attempted_by, settled_by)
VALUES (:notification_id, :channel, :recipient_address, :status, :attempt_count, :lease, :provider, :now, :sent_at,
        :published_at, :published_by, :received_by, :attempted_at, :attempted_by, :settled_by)
ON CONFLICT (notification_id, channel) DO NOTHING
