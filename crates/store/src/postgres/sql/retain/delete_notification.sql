-- Deletes notifications that have no rows left. Uses primary keys.
DELETE FROM campanile.notification n
USING (SELECT DISTINCT id FROM unnest($1::uuid[]) AS k (id)) k
WHERE n.id = k.id AND NOT EXISTS (SELECT FROM campanile.outbox o WHERE o.notification_id = n.id)
