-- A page of changes, the newest first. Uses the primary key.
SELECT id, at, actor_kind, actor_id, actor_name, action, object_type, object_id, before, after
FROM audit WHERE id < :before_id ORDER BY id DESC LIMIT :limit
