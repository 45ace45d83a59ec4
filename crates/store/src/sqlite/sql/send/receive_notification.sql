-- Inserts what the user will see in the inbox, once per event and user. Uses the unique index notification_recipient.
INSERT INTO notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties,
                          priority, shared_read, created_at)
VALUES (:id, :event_id, :event_type, :user_type, :user_id, :entity_type, :entity_id, :title, :body, :properties,
        :priority, :shared_read, :now)
ON CONFLICT DO NOTHING
