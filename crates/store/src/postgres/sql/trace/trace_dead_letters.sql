-- Reads the dead letters of an event. If a user is given, reads those of that user, and always those that belong to no
-- user. Uses the index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, created_at, replayed_at
FROM campanile.dead_letter
WHERE event_id = $1
  AND ($3::text IS NULL OR recipient_id IS NULL OR (recipient_type, recipient_id) = ($2, $3))
ORDER BY id
LIMIT 1000
