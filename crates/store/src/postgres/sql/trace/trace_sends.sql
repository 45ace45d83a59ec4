-- Reads the sends of a page of recipients, with their attempts. For sends with several addresses, also reads the
-- outcome of each address. Uses the unique index notification_recipient, then primary keys.
SELECT n.user_type, n.user_id, s.id, s.notification_id, s.channel, s.recipient_address, s.status, s.attempt_count,
       s.next_attempt_at, s.lease, s.lease_until, s.provider, s.external_id, s.receipt, s.receipt_at, s.last_error,
       s.created_at, s.sent_at, s.deferred_since, s.deferrals, t.published_at, t.attempted_at,
       (SELECT i.name FROM campanile.instance i WHERE i.id = t.published_by) AS published_by,
       (SELECT i.name FROM campanile.instance i WHERE i.id = t.received_by) AS received_by,
       (SELECT i.name FROM campanile.instance i WHERE i.id = t.attempted_by) AS attempted_by,
       (SELECT i.name FROM campanile.instance i WHERE i.id = t.settled_by) AS settled_by,
       (SELECT coalesce(json_agg(json_build_object(
                   'at', to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                   'provider', a.provider, 'outcome', a.outcome, 'error', a.error, 'duration_ms', a.duration_ms,
                   'instance', (SELECT i.name FROM campanile.instance i WHERE i.id = a.instance))
                                 ORDER BY a.id), '[]')
        FROM campanile.send_attempt a WHERE a.notification_id = s.notification_id
          AND a.channel = s.channel) AS attempts,
       (SELECT coalesce(json_agg(json_build_object(
                   'address', a.address, 'outcome', a.outcome, 'external_id', a.external_id, 'error', a.error,
                   'at', to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
                                 ORDER BY a.address), '[]')
        FROM campanile.send_address a WHERE a.notification_id = s.notification_id
          AND a.channel = s.channel) AS addresses
FROM campanile.notification n
CROSS JOIN LATERAL (SELECT * FROM campanile.notification_channel_send v WHERE v.notification_id = n.id OFFSET 0) s
JOIN campanile.send t ON t.notification_id = s.notification_id AND t.channel = s.channel
WHERE n.event_id = $1 AND (n.user_type, n.user_id) >= ($2, $3) AND (n.user_type, n.user_id) <= ($4, $5)
ORDER BY n.user_type, n.user_id, s.channel
