-- The dead letters of an event. Index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, created_at, replayed_at
FROM dead_letter
WHERE event_id = :event_id
ORDER BY id
LIMIT 1000
