-- Reads the dead letters of an event. If a user is given, reads those of that user, and always those that belong to no
-- user. Uses the index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, created_at, replayed_at
FROM dead_letter
WHERE event_id = :event_id
  AND (:user_id IS NULL OR recipient_id IS NULL OR (recipient_type, recipient_id) = (:user_type, :user_id))
ORDER BY id
LIMIT 1000
