-- Receives a batch of messages of which none was received before, so that no key is searched twice: 26 → 21 µs a row
-- (decision 0024). If one was, nothing is written, and `receive` receives the batch. The two statements differ in ON
-- CONFLICT only; the comment on `receive` explains both.
WITH message AS MATERIALIZED (
    SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id,
           o.recipient_address, o.title, o.body, o.priority, o.status IS NULL AS open, k.born, o.inbox_title,
           o.inbox_body, o.audience, o.entity_type, o.entity_id, o.shared_read, e.aggregate_type, e.aggregate_id,
           e.payload, e.lane, e.created_at, k.published_at, k.published_by
    FROM unnest($1::uuid[], $2::text[], $3::text[], $7::timestamptz[], $8::int[])
         AS k (notification_id, channel, born, published_at, published_by)
    JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
    JOIN campanile.event_outbox e ON e.event_id = o.event_id),
inbox AS (
    INSERT INTO campanile.notification (id, event_id, event_type, user_type, user_id, entity_type, entity_id, title,
                                        body, properties, priority, shared_read, created_at)
    SELECT DISTINCT ON (notification_id)
           notification_id, event_id, event_type, recipient_type, recipient_id, entity_type, entity_id,
           coalesce(inbox_title, title), coalesce(inbox_body, body),
           json_build_object('audience', audience, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id,
                             'payload', CASE WHEN octet_length(payload::text) <= $11 THEN payload END),
           coalesce(($10::text[])[lane + 1], ($10::text[])[cardinality($10::text[])]), shared_read, campanile.now()
    FROM message m
    WHERE open AND NOT EXISTS (SELECT FROM campanile.notification n WHERE n.id = m.notification_id)
    ORDER BY notification_id, channel
    RETURNING id),
receivable AS MATERIALIZED (
    SELECT notification_id, channel, recipient_address, priority, published_at, published_by, born AS status
    FROM message m
    WHERE open AND (notification_id IN (SELECT id FROM inbox)
                    OR EXISTS (SELECT FROM campanile.notification n WHERE n.id = m.notification_id))),
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
    FROM receivable f
    WHERE status = 'DUE'
      AND NOT EXISTS (SELECT FROM campanile.send s WHERE s.notification_id = f.notification_id
                      AND s.channel = f.channel)
    ON CONFLICT DO NOTHING),
inserted AS (
    INSERT INTO campanile.send (notification_id, channel, recipient_address, status, attempt_count, lease, provider,
                                created_at, sent_at, published_at, published_by, received_by, attempted_at,
                                attempted_by, settled_by)
    SELECT notification_id, channel, recipient_address, status, CASE WHEN status = 'SENT' THEN 1 ELSE 0 END,
           CASE WHEN status = 'SENDING' THEN (SELECT id FROM claimed) END,
           CASE WHEN status = 'SENT' THEN $9::text END, campanile.now(),
           CASE WHEN status = 'SENT' THEN campanile.now() END,
           CASE WHEN published_at > campanile.now() THEN campanile.now() ELSE published_at END, published_by, $6::int,
           CASE WHEN status <> 'DUE' THEN campanile.now() END, CASE WHEN status <> 'DUE' THEN $6::int END,
           CASE WHEN status <> 'DUE' THEN $6::int END
    FROM receivable
    ORDER BY notification_id, channel
    RETURNING notification_id, channel)
SELECT notification_id, channel, event_id, event_type, recipient_type, recipient_id, recipient_address, title, body,
       priority, 0 AS attempt_count, created_at, open,
       (notification_id, channel) IN (SELECT notification_id, channel FROM receivable) AS receivable,
       (notification_id, channel) IN (SELECT notification_id, channel FROM inserted) AS inserted,
       CASE WHEN born = 'SENDING' THEN (SELECT id FROM claimed) END AS lease
FROM message
