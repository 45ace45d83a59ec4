-- Lists waiting sends in the order in which they are claimed, up to the given channel. Uses primary keys.
SELECT s.*, o.event_id, o.recipient_type AS user_type, o.recipient_id AS user_id, b.since AS in_doubt_since,
       json_build_array(k.channel, k.lane::text, k.due_at, k.notification_id) AS cursor
FROM (SELECT channel, lane, due_at, notification_id FROM campanile.send_due
      WHERE (channel, lane, due_at, notification_id)
            > (($1::text[])[1], ($1::text[])[2]::smallint, ($1::text[])[3]::timestamptz, ($1::text[])[4]::uuid)
        AND channel <= $3
      ORDER BY channel, lane, due_at, notification_id
      LIMIT $2) k
LEFT JOIN LATERAL (SELECT * FROM campanile.notification_channel_send v
                   WHERE v.notification_id = k.notification_id AND v.channel = k.channel OFFSET 0) s ON true
LEFT JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
LEFT JOIN campanile.send_in_doubt b ON b.notification_id = k.notification_id AND b.channel = k.channel
ORDER BY k.channel, k.lane, k.due_at, k.notification_id
