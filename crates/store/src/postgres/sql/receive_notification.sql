-- What users will see in the inbox, once per event and user. Unique index notification_recipient; in key order, so that two
-- batches do not wait for each other in a circle.
INSERT INTO campanile.notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties,
                                    priority, shared_read, created_at)
SELECT DISTINCT ON (o.notification_id)
       o.notification_id, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.entity_type, o.entity_id,
       coalesce(o.inbox_title, o.title), coalesce(o.inbox_body, o.body),
       json_build_object('audience', o.audience, 'aggregate_type', e.aggregate_type, 'aggregate_id', e.aggregate_id,
                         'payload', CASE WHEN octet_length(e.payload::text) <= 4096 THEN e.payload END),
       CASE e.lane WHEN 0 THEN 'HIGH' WHEN 1 THEN 'NORMAL' ELSE 'LOW' END, o.shared_read, campanile.now()
FROM unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel AND o.status IS NULL
JOIN campanile.event_outbox e ON e.event_id = o.event_id
ORDER BY o.notification_id, o.channel
ON CONFLICT DO NOTHING
