-- Lists waiting sends in the order in which they are claimed, up to the given channel. Uses primary keys.
-- Reads the tables of the view notification_channel_send, since an outer join would read the whole view.
SELECT s.notification_id || ':' || s.channel AS id, s.notification_id, s.channel, s.recipient_address, s.status,
       s.attempt_count, d.due_at AS next_attempt_at, s.lease, c.lease_until, s.provider, s.external_id, s.receipt,
       s.receipt_at, s.last_error, s.created_at, s.sent_at, s.deferred_since, coalesce(s.deferrals, 0) AS deferrals,
       o.event_id, o.recipient_type AS user_type, o.recipient_id AS user_id, b.since AS in_doubt_since,
       json_array(k.channel, CAST(k.lane AS TEXT), k.due_at, k.notification_id) AS cursor
FROM (SELECT channel, lane, due_at, notification_id FROM send_due
      WHERE (channel, lane, due_at, notification_id)
            > (json_extract(:after, '$[0]'), CAST(json_extract(:after, '$[1]') AS INTEGER),
               json_extract(:after, '$[2]'), json_extract(:after, '$[3]'))
        AND channel <= :last_channel
      ORDER BY channel, lane, due_at, notification_id
      LIMIT :limit) k
LEFT JOIN send s ON s.notification_id = k.notification_id AND s.channel = k.channel
LEFT JOIN send_due d ON d.notification_id = k.notification_id AND d.channel = k.channel
LEFT JOIN send_claim c ON c.id = s.lease AND s.status = 'SENDING'
LEFT JOIN outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
LEFT JOIN send_in_doubt b ON b.notification_id = k.notification_id AND b.channel = k.channel
ORDER BY k.channel, k.lane, k.due_at, k.notification_id
