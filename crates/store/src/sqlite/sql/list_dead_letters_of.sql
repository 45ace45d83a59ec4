-- The dead letters of one event, by age. Index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM dead_letter
WHERE event_id = :event_id AND id > :after AND id <= :last
  AND (:replayed OR replayed_at IS NULL)
  AND (:stage IS NULL OR stage = :stage)
  AND (:channel IS NULL OR channel = :channel)
  AND (:provider IS NULL OR provider = :provider)
  AND (:reason IS NULL OR reason = :reason)
  AND (:error IS NULL OR instr(error, :error) > 0)
  AND (:until IS NULL OR created_at <= :until)
ORDER BY id
LIMIT :limit
