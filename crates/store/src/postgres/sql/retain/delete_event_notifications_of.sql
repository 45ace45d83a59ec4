-- Deletes what the members of entities shared of an event. Prefix of the primary key.
DELETE FROM campanile.event_notification
WHERE (event_id, entity_type, entity_id) IN (
    SELECT event_id, entity_type, entity_id FROM campanile.event_notification
    WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)
    LIMIT $2)
