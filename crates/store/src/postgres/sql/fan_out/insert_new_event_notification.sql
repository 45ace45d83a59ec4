-- Records that the members of entities share the notifications of events, for events that have no such records yet. The
-- primary key is searched once.
INSERT INTO campanile.event_notification (event_id, entity_type, entity_id, shared_read)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS s (event_id, entity_type, entity_id,
    shared_read)
ORDER BY 1, 2, 3
