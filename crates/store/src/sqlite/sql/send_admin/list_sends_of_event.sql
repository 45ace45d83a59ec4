-- Lists the sends of an event by recipient, and the rows that have no send yet. Uses the unique index outbox_recipient,
-- then primary keys.
-- Reads the tables of the view notification_channel_send, since an outer join would read the whole view.
SELECT s.notification_id || ':' || s.channel AS id, s.notification_id, s.channel, s.recipient_address, s.status,
       s.attempt_count, d.due_at AS next_attempt_at, s.lease, c.lease_until, s.provider, s.external_id, s.receipt,
       s.receipt_at, s.last_error, s.created_at, s.sent_at, s.deferred_since, coalesce(s.deferrals, 0) AS deferrals,
       k.event_id, k.recipient_type AS user_type, k.recipient_id AS user_id, b.since AS in_doubt_since,
       json_array(k.recipient_type, k.recipient_id, k.channel) AS cursor
FROM (SELECT notification_id, channel, event_id, recipient_type, recipient_id FROM outbox
      WHERE event_id = :event_id
        AND (recipient_type, recipient_id, channel)
            > (json_extract(:after, '$[0]'), json_extract(:after, '$[1]'), json_extract(:after, '$[2]'))
      ORDER BY recipient_type, recipient_id, channel
      LIMIT :limit) k
LEFT JOIN send s ON s.notification_id = k.notification_id AND s.channel = k.channel
LEFT JOIN send_due d ON d.notification_id = k.notification_id AND d.channel = k.channel
LEFT JOIN send_claim c ON c.id = s.lease AND s.status = 'SENDING'
LEFT JOIN send_in_doubt b ON b.notification_id = k.notification_id AND b.channel = k.channel
ORDER BY k.recipient_type, k.recipient_id, k.channel
