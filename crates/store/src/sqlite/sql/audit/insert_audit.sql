-- Records a change in the transaction of the change.
INSERT INTO audit (at, actor_kind, actor_id, actor_name, action, object_type, object_id, before, after)
VALUES (:now, :actor_kind, :actor_id, :actor_name, :action, :object_type, :object_id, :before, :after)
