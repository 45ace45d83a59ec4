-- Records that the members of entities share events; for events of which nothing was ever written. Primary key,
-- searched once.
INSERT INTO campanile.event_notification (event_id, entity_type, entity_id, shared_read)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS s (event_id, entity_type, entity_id,
    shared_read)
ORDER BY 1, 2, 3
