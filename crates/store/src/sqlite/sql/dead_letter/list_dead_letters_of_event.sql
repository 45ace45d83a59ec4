-- Lists the dead letters of one event by age. Those of sends include the attempts. Uses the index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at,
       replayed_at,
       (SELECT json_group_array(json_object('at', a.at, 'provider', a.provider, 'outcome', a.outcome, 'error', a.error,
                                            'duration_ms', a.duration_ms))
        FROM outbox o
        JOIN send_attempt a ON a.notification_id = o.notification_id AND a.channel = o.channel
        WHERE d.stage = 'send' AND o.event_id = d.event_id AND o.recipient_type = d.recipient_type
          AND o.recipient_id = d.recipient_id AND o.channel = d.channel) AS attempts
FROM dead_letter d
WHERE d.event_id = :event_id AND id > :after AND id <= :last
  AND (:replayed OR replayed_at IS NULL)
  AND (:stage IS NULL OR stage = :stage)
  AND (:channel IS NULL OR channel = :channel)
  AND (:provider IS NULL OR provider = :provider)
  AND (:reason IS NULL OR reason = :reason)
  AND (:error IS NULL OR instr(error, :error) > 0)
  AND (:until IS NULL OR created_at <= :until)
ORDER BY id
LIMIT :limit
