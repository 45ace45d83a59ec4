-- What the user will see in the inbox, once per event and user. Unique index notification_recipient.
INSERT INTO notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties, priority,
                          shared_read, created_at)
SELECT o.notification_id, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.entity_type, o.entity_id,
       coalesce(o.inbox_title, o.title), coalesce(o.inbox_body, o.body),
       json_object('audience', o.audience, 'aggregate_type', e.aggregate_type, 'aggregate_id', e.aggregate_id,
                   'payload', CASE WHEN octet_length(e.payload) <= 4096 THEN json(e.payload) END),
       CASE e.lane WHEN 0 THEN 'HIGH' WHEN 1 THEN 'NORMAL' ELSE 'LOW' END, o.shared_read, :now
FROM outbox o
JOIN event_outbox e ON e.event_id = o.event_id
WHERE o.notification_id = :notification_id AND o.channel = :channel
ON CONFLICT DO NOTHING
