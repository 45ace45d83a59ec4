-- Reads the sends that are still SENDING under a claim. The address is that of the send: what is left of the row's
-- address. Uses primary keys.
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, s.recipient_address,
       o.title, o.body, o.priority, s.attempt_count, e.created_at, s.deferred_since, s.deferrals, s.unanswered
FROM unnest($1::uuid[]) AS n (id)
JOIN campanile.send s ON s.notification_id = n.id AND s.status = 'SENDING' AND s.lease = $2
JOIN campanile.outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
JOIN campanile.event_outbox e ON e.event_id = o.event_id
ORDER BY o.notification_id, o.channel
