-- Who posts an event to a webhook: the first that asks, and everybody is told who that is. Where the row is there, it is written
-- as it was, since only what is written is answered. Primary key.
INSERT INTO event_post (event_id, address_hash, notification_id, at)
VALUES (:event_id, :address_hash, :notification_id, :at)
ON CONFLICT (event_id, address_hash) DO UPDATE SET notification_id = event_post.notification_id
RETURNING notification_id
