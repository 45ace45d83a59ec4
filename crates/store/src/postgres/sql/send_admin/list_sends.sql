-- Lists sends, newest first. Their ids rise with time. Uses primary keys.
SELECT s.*, o.event_id, o.recipient_type AS user_type, o.recipient_id AS user_id, b.since AS in_doubt_since,
       json_build_array(k.notification_id, k.channel) AS cursor
FROM (SELECT notification_id, channel FROM campanile.send
      WHERE (notification_id, channel) < (($1::text[])[1]::uuid, ($1::text[])[2])
      ORDER BY notification_id DESC, channel DESC
      LIMIT $2) k
LEFT JOIN LATERAL (SELECT * FROM campanile.notification_channel_send v
                   WHERE v.notification_id = k.notification_id AND v.channel = k.channel OFFSET 0) s ON true
LEFT JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
LEFT JOIN campanile.send_in_doubt b ON b.notification_id = k.notification_id AND b.channel = k.channel
ORDER BY k.notification_id DESC, k.channel DESC
