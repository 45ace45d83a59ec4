-- Lists sends in doubt, starting with those that have been in doubt for the longest time. Uses primary keys and
-- send_in_doubt_send.
SELECT s.*, o.event_id, o.recipient_type AS user_type, o.recipient_id AS user_id, b.since AS in_doubt_since,
       json_build_array(k.since, k.notification_id, k.channel) AS cursor
FROM (SELECT since, notification_id, channel FROM campanile.send_in_doubt
      WHERE (since, notification_id, channel) > (($1::text[])[1]::timestamptz, ($1::text[])[2]::uuid, ($1::text[])[3])
      ORDER BY since, notification_id, channel
      LIMIT $2) k
LEFT JOIN LATERAL (SELECT * FROM campanile.notification_channel_send v
                   WHERE v.notification_id = k.notification_id AND v.channel = k.channel OFFSET 0) s ON true
LEFT JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
LEFT JOIN campanile.send_in_doubt b ON b.notification_id = k.notification_id AND b.channel = k.channel
ORDER BY k.since, k.notification_id, k.channel
