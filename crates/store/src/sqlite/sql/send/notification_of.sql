-- Reads the notification of an event for one user. Uses the unique index notification_recipient.
SELECT id FROM notification WHERE event_id = :event_id AND user_type = :user_type AND user_id = :user_id
