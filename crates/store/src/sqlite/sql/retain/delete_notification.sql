-- Deletes a notification that has no rows left. Uses primary keys.
DELETE FROM notification
WHERE id = :notification_id AND NOT EXISTS (SELECT 1 FROM outbox WHERE notification_id = :notification_id)
