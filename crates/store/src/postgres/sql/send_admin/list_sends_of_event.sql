-- Lists the sends of an event by recipient, and the rows that have no send yet. Uses the unique index outbox_recipient,
-- then primary keys.
SELECT s.*, k.event_id, k.recipient_type AS user_type, k.recipient_id AS user_id, b.since AS in_doubt_since,
       json_build_array(k.recipient_type, k.recipient_id, k.channel) AS cursor
FROM (SELECT notification_id, channel, event_id, recipient_type, recipient_id FROM campanile.outbox
      WHERE event_id = $3
        AND (recipient_type, recipient_id, channel) > (($1::text[])[1], ($1::text[])[2], ($1::text[])[3])
      ORDER BY recipient_type, recipient_id, channel
      LIMIT $2) k
LEFT JOIN LATERAL (SELECT * FROM campanile.notification_channel_send v
                   WHERE v.notification_id = k.notification_id AND v.channel = k.channel OFFSET 0) s ON true
LEFT JOIN campanile.send_in_doubt b ON b.notification_id = k.notification_id AND b.channel = k.channel
ORDER BY k.recipient_type, k.recipient_id, k.channel
