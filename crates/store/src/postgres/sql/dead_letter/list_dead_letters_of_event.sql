-- Lists the dead letters of one event by age. Those of sends include the attempts. Uses the index dead_letter_event.
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at,
       replayed_at,
       (SELECT coalesce(json_agg(json_build_object(
                   'at', to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                   'provider', a.provider, 'outcome', a.outcome, 'error', a.error,
                   'duration_ms', a.duration_ms) ORDER BY a.id), '[]')
        FROM campanile.outbox o
        JOIN campanile.send_attempt a ON a.notification_id = o.notification_id AND a.channel = o.channel
        WHERE d.stage = 'send' AND o.event_id = d.event_id AND o.recipient_type = d.recipient_type
          AND o.recipient_id = d.recipient_id AND o.channel = d.channel) AS attempts
FROM campanile.dead_letter d
WHERE d.event_id = $11 AND id > $1 AND id <= $2
  AND ($3 OR replayed_at IS NULL)
  AND ($4::text IS NULL OR stage = $4)
  AND ($5::text IS NULL OR channel = $5)
  AND ($6::text IS NULL OR provider = $6)
  AND ($7::text IS NULL OR reason = $7)
  AND ($8::text IS NULL OR strpos(error, $8) > 0)
  AND ($9::timestamptz IS NULL OR created_at <= $9)
ORDER BY id
LIMIT $10
