-- Reads the sends of a page of recipients, with their attempts. For sends with several addresses, also reads the
-- outcome of each address. Uses the unique index notification_recipient, then primary keys.
SELECT n.user_type, n.user_id, s.*,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.published_at / 1000.0, 'unixepoch') AS published_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.attempted_at / 1000.0, 'unixepoch') AS attempted_at,
       (SELECT i.name FROM instance i WHERE i.id = t.published_by) AS published_by,
       (SELECT i.name FROM instance i WHERE i.id = t.received_by) AS received_by,
       (SELECT i.name FROM instance i WHERE i.id = t.attempted_by) AS attempted_by,
       (SELECT i.name FROM instance i WHERE i.id = t.settled_by) AS settled_by,
       (SELECT json_group_array(json_object('at', a.at, 'provider', a.provider, 'outcome', a.outcome, 'error', a.error,
                                            'duration_ms', a.duration_ms,
                                            'instance', (SELECT i.name FROM instance i WHERE i.id = a.instance)))
        FROM send_attempt a WHERE a.notification_id = s.notification_id AND a.channel = s.channel) AS attempts,
       (SELECT json_group_array(json_object('address', a.address, 'outcome', a.outcome, 'external_id', a.external_id,
                                            'error', a.error, 'at', a.at))
        FROM send_address a WHERE a.notification_id = s.notification_id AND a.channel = s.channel) AS addresses
FROM notification n
JOIN notification_channel_send s ON s.notification_id = n.id
JOIN send t ON t.notification_id = s.notification_id AND t.channel = s.channel
WHERE n.event_id = :event_id
  AND (n.user_type, n.user_id) >= (:first_type, :first_id) AND (n.user_type, n.user_id) <= (:last_type, :last_id)
ORDER BY n.user_type, n.user_id, s.channel
