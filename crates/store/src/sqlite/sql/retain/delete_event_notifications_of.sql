-- Deletes the records that members of entities share the notification of an event. Uses a prefix of the primary key.
DELETE FROM event_notification
WHERE (event_id, entity_type, entity_id) IN (
    SELECT event_id, entity_type, entity_id FROM event_notification
    WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
    LIMIT :limit)
