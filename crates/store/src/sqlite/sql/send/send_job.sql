-- Reads everything that an attempt needs. The address is that of the send: what is left of the row's address. Where
-- sends have several addresses, `any_sent` says whether one of the finished addresses was sent to. Uses primary keys.
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, s.recipient_address,
       o.title, o.body, o.priority, s.attempt_count, e.created_at, s.deferred_since, s.deferrals, s.unanswered,
       CASE WHEN :many_addresses AND s.recipient_address <> o.recipient_address THEN
           EXISTS (SELECT 1 FROM send_address a
                   WHERE a.notification_id = s.notification_id AND a.channel = s.channel AND a.outcome = 'SENT')
       END AS any_sent
FROM send s
JOIN outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
JOIN event_outbox e ON e.event_id = o.event_id
WHERE s.notification_id = :notification_id AND s.channel = :channel
