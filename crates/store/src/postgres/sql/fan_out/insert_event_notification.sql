-- Records that the members of an entity share the notification of an event. Uses the primary key.
INSERT INTO campanile.event_notification AS n (event_id, entity_type, entity_id, shared_read)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS s (event_id, entity_type, entity_id,
    shared_read)
ORDER BY 1, 2, 3
ON CONFLICT (event_id, entity_type, entity_id) DO UPDATE SET shared_read = n.shared_read OR excluded.shared_read
