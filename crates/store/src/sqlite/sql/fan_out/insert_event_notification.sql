-- Records that the members of an entity share the notification of an event. Uses the primary key.
INSERT INTO event_notification (event_id, entity_type, entity_id, shared_read)
VALUES (:event_id, :entity_type, :entity_id, :shared_read)
ON CONFLICT (event_id, entity_type, entity_id) DO UPDATE SET shared_read = max(shared_read, excluded.shared_read)
