-- Inserts the sends that `receive` could not insert, because another transaction had just written their notification.
-- $3 is the status that each send starts with. If a message is redelivered, its send exists already. One claim guards
-- the sends that this instance may attempt at once. Returns only new sends. Uses primary keys, in their order.
WITH receivable AS (
    SELECT o.notification_id, o.channel, o.recipient_address, o.priority, k.published_at, k.published_by,
           k.born AS status
    FROM unnest($1::uuid[], $2::text[], $3::text[], $7::timestamptz[], $8::int[])
         AS k (notification_id, channel, born, published_at, published_by)
    JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel AND o.status IS NULL
    JOIN campanile.notification n ON n.id = o.notification_id
    LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
    WHERE s.channel IS NULL),
claimed AS (
    INSERT INTO campanile.send_claim (instance, lease_until, notifications)
    SELECT $4, campanile.now() + make_interval(secs => $5), array_agg(DISTINCT notification_id)
    FROM receivable WHERE status = 'SENDING'
    HAVING count(*) > 0
    RETURNING id),
waiting AS (
    -- An entry for a send that another transaction has just inserted is harmless: whoever claims it finds no due send.
    INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
    SELECT channel, coalesce(array_position($10::text[], priority), cardinality($10::text[])) - 1, campanile.now(),
           notification_id
    FROM receivable WHERE status = 'DUE'
    ON CONFLICT DO NOTHING)
INSERT INTO campanile.send (notification_id, channel, recipient_address, status, attempt_count, lease, provider,
                            created_at, sent_at, published_at, published_by, received_by, attempted_at, attempted_by,
                            settled_by)
SELECT notification_id, channel, recipient_address, status, CASE WHEN status = 'SENT' THEN 1 ELSE 0 END,
       CASE WHEN status = 'SENDING' THEN (SELECT id FROM claimed) END,
       CASE WHEN status = 'SENT' THEN $9::text END, campanile.now(),
       CASE WHEN status = 'SENT' THEN campanile.now() END,
       CASE WHEN published_at > campanile.now() THEN campanile.now() ELSE published_at END, published_by, $6::int,
       CASE WHEN status <> 'DUE' THEN campanile.now() END, CASE WHEN status <> 'DUE' THEN $6::int END,
       CASE WHEN status <> 'DUE' THEN $6::int END
FROM receivable
ORDER BY notification_id, channel
ON CONFLICT (notification_id, channel) DO NOTHING
RETURNING notification_id, channel, status, lease
