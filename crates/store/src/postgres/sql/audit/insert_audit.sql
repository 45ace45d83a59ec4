-- Records changes in the transaction of the changes. Their columns are passed as arrays.
INSERT INTO campanile.audit (at, actor_kind, actor_id, actor_name, action, object_type, object_id, before, after)
SELECT campanile.now(), $1, $2, $3, action, object_type, object_id, before::json, after::json
FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
     AS change (action, object_type, object_id, before, after)
