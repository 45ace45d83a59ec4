-- The notification that a user has of an event. Unique index notification_recipient.
SELECT id FROM notification WHERE event_id = :event_id AND user_type = :user_type AND user_id = :user_id
