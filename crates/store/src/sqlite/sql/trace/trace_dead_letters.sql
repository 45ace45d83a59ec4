-- The dead letters of an event: of one user where one is given, and always those of nobody in particular. Index
-- dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, created_at, replayed_at
FROM dead_letter
WHERE event_id = :event_id
  AND (:user_id IS NULL OR recipient_id IS NULL OR (recipient_type, recipient_id) = (:user_type, :user_id))
ORDER BY id
LIMIT 1000
