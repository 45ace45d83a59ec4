-- Who posts an event to a webhook: the first that asks, and everybody is told who that is. Where the row is there, it is written
-- as it was, since only what is written is answered, also of a row that was not to be seen yet. Primary key.
INSERT INTO campanile.event_post AS p (event_id, address_hash, notification_id, at)
VALUES ($1, $2, $3, campanile.now())
ON CONFLICT (event_id, address_hash) DO UPDATE SET notification_id = p.notification_id
RETURNING p.notification_id
