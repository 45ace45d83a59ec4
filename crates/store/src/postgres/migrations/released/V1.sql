-- What the release with V1 says to the database: its statements, and what it lets producers write. It is never edited: later
-- migrations have to leave all of it working (decision 0015).

-- name: accept_event
WITH n AS MATERIALIZED (
    SELECT nextval('campanile.event_outbox_id_seq') AS id, given.*
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
                        WITH ORDINALITY AS g (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at,
                                              place)
          ORDER BY place) given)
INSERT INTO campanile.event_outbox (id, event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at)
OVERRIDING SYSTEM VALUE
SELECT n.id, n.event_id, n.event_type, n.aggregate_type, n.aggregate_id, n.payload::json, n.priority, n.occurred_at
FROM n
ORDER BY n.event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- name: assign_chunk
UPDATE campanile.outbox o
SET chunk_id = n.chunk_id
FROM unnest($1::bigint[], $2::uuid[], $3::text[]) AS n (chunk_id, notification_id, channel)
WHERE o.notification_id = n.notification_id AND o.channel = n.channel

-- name: cancel_row
UPDATE campanile.outbox o
SET status = 'CANCELLED', last_error = $3
FROM unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE o.notification_id = k.notification_id AND o.channel = k.channel AND o.status IS NULL

-- name: chunk_rows
SELECT o.notification_id, o.channel, o.recipient_type, o.recipient_id, o.recipient_address, o.title, o.body, o.priority,
       o.audience, o.entity_type, o.entity_id, o.shared_read, o.queue,
       e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority AS event_priority,
       e.occurred_at, e.created_at
FROM campanile.outbox o
JOIN campanile.event_outbox e ON e.event_id = o.event_id
LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.notification_id BETWEEN $2 AND $3
  AND o.chunk_id = $1 AND o.status IS NULL AND s.channel IS NULL
ORDER BY o.notification_id, o.channel

-- name: claim_chunk
UPDATE campanile.publish_chunk
SET lease_until = campanile.now() + make_interval(secs => $2)
WHERE id = (
    SELECT id FROM campanile.publish_chunk
    WHERE queue = $1 AND (lease_until IS NULL OR lease_until < campanile.now())
    ORDER BY lane, id
    LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING id, queue, lane, first_id, last_id

-- name: claim_fresh
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at, e.created_at,
       e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason, campanile.now() AS now
FROM campanile.event_outbox e
LEFT JOIN campanile.processed_event p ON p.event_id = e.event_id
LEFT JOIN campanile.event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NULL
ORDER BY e.lane, e.id
LIMIT $1
FOR UPDATE OF e SKIP LOCKED

-- name: claim_these
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at, e.created_at,
       e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason, campanile.now() AS now
FROM unnest($1::bigint[]) AS j (id)
JOIN campanile.event_outbox e ON e.id = j.id
LEFT JOIN campanile.processed_event p ON p.event_id = e.event_id
LEFT JOIN campanile.event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING'
ORDER BY e.lane, e.id
FOR UPDATE OF e SKIP LOCKED

-- name: claim_unfinished
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at, e.created_at,
       e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason, campanile.now() AS now
FROM campanile.event_outbox e
LEFT JOIN campanile.processed_event p ON p.event_id = e.event_id
LEFT JOIN campanile.event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NOT NULL
ORDER BY e.lane, e.id <= $1, e.id
LIMIT 1
FOR UPDATE OF e SKIP LOCKED

-- name: claimed_jobs
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, s.attempt_count
FROM unnest($1::uuid[]) AS n (id)
JOIN campanile.send s ON s.notification_id = n.id AND s.status = 'SENDING' AND s.lease = $2
JOIN campanile.outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
JOIN campanile.event_outbox e ON e.event_id = o.event_id
ORDER BY o.notification_id, o.channel

-- name: close_events
WITH complete AS (
    SELECT e.id
    FROM unnest($1::text[]) AS n (event_id)
    JOIN campanile.event_outbox e ON e.event_id = n.event_id AND e.status || '' = 'PUBLISHED'
    WHERE (SELECT 1
           FROM campanile.outbox o
           LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
           WHERE o.event_id = e.event_id AND o.status IS NULL AND s.channel IS NULL
           ORDER BY o.recipient_type DESC, o.recipient_id DESC, o.channel DESC
           LIMIT 1) IS NULL
    ORDER BY e.id
    FOR UPDATE OF e SKIP LOCKED)
UPDATE campanile.event_outbox e
SET status = 'PROCESSED', processed_at = campanile.now()
FROM complete
WHERE e.id = complete.id

-- name: confirm_rows
UPDATE campanile.outbox o
SET chunk_id = NULL
FROM campanile.publish_chunk c
WHERE c.id = $1 AND o.chunk_id = $1 AND o.notification_id BETWEEN c.first_id AND c.last_id
  AND (o.notification_id, o.channel) NOT IN (SELECT * FROM unnest($2::uuid[], $3::text[]))

-- name: count_failure
UPDATE campanile.event_outbox
SET retry_count = retry_count + 1, last_error = $2
WHERE id = $1 AND status = 'PENDING'
RETURNING retry_count, event_id

-- name: dead_addresses_of
SELECT d.channel, d.address, d.reason
FROM unnest($1::text[], $2::text[]) AS a (channel, address)
JOIN campanile.dead_address d ON d.channel = a.channel AND d.address = a.address

-- name: default_settings
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.roles, s.quiet_hours_start,
       s.quiet_hours_end, s.quiet_hours_mode
FROM campanile.entity_notification_settings s
WHERE s.entity_id = '*'
ORDER BY s.entity_type

-- name: delete_attempts
DELETE FROM campanile.send_attempt t
USING unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE t.notification_id = k.notification_id AND t.channel = k.channel

-- name: delete_cancel
DELETE FROM campanile.event_cancel WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)

-- name: delete_captured_of
DELETE FROM campanile.captured_message
WHERE id IN (SELECT id FROM campanile.captured_message
             WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) LIMIT $2)

-- name: delete_chunk
DELETE FROM campanile.publish_chunk WHERE id = $1

-- name: delete_claim
DELETE FROM campanile.send_claim WHERE id = ANY ($1::bigint[])

-- name: delete_event
DELETE FROM campanile.event_outbox WHERE id = $1

-- name: delete_letters_of
DELETE FROM campanile.dead_letter
WHERE id IN (SELECT id FROM campanile.dead_letter
             WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) LIMIT $2)

-- name: delete_notification
DELETE FROM campanile.notification n
USING (SELECT DISTINCT id FROM unnest($1::uuid[]) AS k (id)) k
WHERE n.id = k.id AND NOT EXISTS (SELECT FROM campanile.outbox o WHERE o.notification_id = n.id)

-- name: delete_old_captured
DELETE FROM campanile.captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM campanile.captured_message ORDER BY id LIMIT $2) first
             WHERE at < campanile.now() - make_interval(secs => $1))

-- name: delete_row
DELETE FROM campanile.outbox t
USING unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE t.notification_id = k.notification_id AND t.channel = k.channel

-- name: delete_send
DELETE FROM campanile.send t
USING unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
WHERE t.notification_id = k.notification_id AND t.channel = k.channel

-- name: delete_shared_of
DELETE FROM campanile.event_notification
WHERE (event_id, entity_type, entity_id) IN (
    SELECT event_id, entity_type, entity_id FROM campanile.event_notification
    WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)
    LIMIT $2)

-- name: delete_stray_letters
DELETE FROM campanile.dead_letter
WHERE id IN (
    SELECT id
    FROM (SELECT id, created_at FROM campanile.dead_letter WHERE event_id IS NULL ORDER BY event_id, id LIMIT $2) first
    WHERE created_at < campanile.now() - make_interval(secs => $1))

-- name: event_status
SELECT status FROM campanile.event_outbox WHERE event_id = $1

-- name: expired_claims
SELECT id, notifications FROM campanile.send_claim WHERE lease_until < campanile.now() ORDER BY lease_until LIMIT $1

-- name: fail_row
UPDATE campanile.outbox o
SET status = 'FAILED', last_error = f.error
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS f (notification_id, channel, error)
WHERE o.notification_id = f.notification_id AND o.channel = f.channel AND o.status IS NULL
  AND NOT EXISTS (SELECT FROM campanile.send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
RETURNING o.notification_id, o.channel, o.event_id, o.recipient_type, o.recipient_id

-- name: finish_event
UPDATE campanile.event_outbox e
SET status = s.status, fan_out_cursor = s.cursor_after, last_error = s.error,
    published_at = CASE WHEN s.status IN ('PUBLISHED', 'PROCESSED') THEN campanile.now() ELSE e.published_at END,
    processed_at = CASE WHEN s.status = 'PROCESSED' THEN campanile.now() ELSE e.processed_at END
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
     AS s (id, status, cursor_after, error, cursor_before)
WHERE e.id = s.id AND e.status = 'PENDING' AND e.fan_out_cursor IS NOT DISTINCT FROM s.cursor_before

-- name: forget_decisions
UPDATE campanile.processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND decisions IS NOT NULL

-- name: forgotten_event
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at, e.created_at
FROM campanile.event_outbox e
WHERE e.id = $1 AND NOT EXISTS (SELECT FROM campanile.processed_event p WHERE p.event_id = e.event_id)

-- name: give_up_event
UPDATE campanile.event_outbox e
SET status = CASE WHEN told.begun THEN 'PUBLISHED' ELSE 'FAILED' END,
    published_at = CASE WHEN told.begun THEN campanile.now() ELSE e.published_at END,
    last_error = $2, fan_out_cursor = NULL
FROM (SELECT EXISTS (SELECT FROM campanile.event_outbox o
                     JOIN campanile.processed_event p ON p.event_id = o.event_id
                     WHERE o.id = $1 AND p.status = 'PROCESSING' AND p.recipients > 0) AS begun) told
WHERE e.id = $1 AND e.status = 'PENDING'

-- name: give_up_processed
UPDATE campanile.processed_event
SET status = CASE WHEN recipients > 0 THEN 'SUCCESS' ELSE 'FAILED' END
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND status = 'PROCESSING'

-- name: group_settings
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.roles, s.quiet_hours_start,
       s.quiet_hours_end, s.quiet_hours_mode
FROM unnest($1::text[], $2::text[]) AS j (entity_type, entity_id)
JOIN campanile.entity_notification_settings s ON s.entity_type = j.entity_type AND s.entity_id = j.entity_id

-- name: groups
SELECT e.entity_type, e.entity_id, e.kind
FROM unnest($1::text[], $2::text[]) AS j (entity_type, entity_id)
JOIN campanile.entity e ON e.entity_type = j.entity_type AND e.entity_id = j.entity_id

-- name: hold_lease
INSERT INTO campanile.lease (name, holder, lease_until) VALUES ($1, $2, campanile.now() + make_interval(secs => $3))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
WHERE lease.holder = excluded.holder OR lease.lease_until <= campanile.now()

-- name: insert_attempt
INSERT INTO campanile.send_attempt (notification_id, channel, provider, outcome, error, duration_ms, at)
SELECT n.*, campanile.now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[]) AS n

-- name: insert_captured
INSERT INTO campanile.captured_message (event_id, user_type, user_id, channel, address, title, body, at)
SELECT n.*, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) AS n

-- name: insert_chunk
INSERT INTO campanile.publish_chunk (queue, lane, first_id, last_id, lease_until)
SELECT c.queue, c.lane, c.first_id, c.last_id, CASE WHEN c.leased THEN campanile.now() + make_interval(secs => $6) END
FROM unnest($1::text[], $2::smallint[], $3::uuid[], $4::uuid[], $5::boolean[])
     WITH ORDINALITY AS c (queue, lane, first_id, last_id, leased, place)
ORDER BY c.place
RETURNING id

-- name: insert_dead_letter
INSERT INTO campanile.dead_letter (stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message,
                                   created_at)
SELECT n.*, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]) AS n

-- name: insert_due
INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::uuid[])
ON CONFLICT (notification_id, channel) DO UPDATE SET due_at = excluded.due_at, lane = excluded.lane

-- name: insert_event_notification
INSERT INTO campanile.event_notification AS n (event_id, entity_type, entity_id, shared_read)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[]) AS s (event_id, entity_type, entity_id, shared_read)
ORDER BY 1, 2, 3
ON CONFLICT (event_id, entity_type, entity_id) DO UPDATE SET shared_read = n.shared_read OR excluded.shared_read

-- name: insert_outbox
INSERT INTO campanile.outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address, title, body,
                              inbox_title, inbox_body, priority, audience, entity_type, entity_id, shared_read, queue, chunk_id,
                              status, last_error, created_at)
SELECT n.*, campanile.now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::text[], $17::bigint[],
            $18::text[], $19::text[]) AS n
ON CONFLICT DO NOTHING
RETURNING notification_id, channel

-- name: known_event
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at, e.created_at
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.event_outbox e ON e.event_id = n.event_id

-- name: known_hash
SELECT p.event_id, p.body_hash
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.processed_event p ON p.event_id = n.event_id

-- name: lease_holder
SELECT holder, extract(epoch FROM lease_until - campanile.now())::float8 AS rest FROM campanile.lease WHERE name = $1

-- name: let_lease_go
DELETE FROM campanile.lease WHERE name = $1 AND holder = $2

-- name: letter_row
SELECT o.notification_id, o.channel, o.queue, o.priority, o.status,
       (SELECT s.status FROM campanile.send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel) AS send
FROM campanile.outbox o
WHERE o.event_id = $1 AND o.recipient_type = $2 AND o.recipient_id = $3 AND o.channel = $4

-- name: list_captured
SELECT id, event_id, user_type, user_id, channel, address, title, body, at
FROM campanile.captured_message
WHERE id > $1
ORDER BY id
LIMIT $2

-- name: list_captured_of
SELECT id, event_id, user_type, user_id, channel, address, title, body, at
FROM campanile.captured_message
WHERE event_id = $1 AND id > $2
ORDER BY id
LIMIT $3

-- name: list_dead_letters
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM campanile.dead_letter
WHERE id > $1 AND id <= $2
  AND ($3 OR replayed_at IS NULL)
  AND ($4::text IS NULL OR stage = $4)
  AND ($5::text IS NULL OR channel = $5)
  AND ($6::text IS NULL OR provider = $6)
  AND ($7::text IS NULL OR reason = $7)
  AND ($8::text IS NULL OR strpos(error, $8) > 0)
  AND ($9::timestamptz IS NULL OR created_at <= $9)
ORDER BY id
LIMIT $10

-- name: list_dead_letters_of
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM campanile.dead_letter
WHERE event_id = $11 AND id > $1 AND id <= $2
  AND ($3 OR replayed_at IS NULL)
  AND ($4::text IS NULL OR stage = $4)
  AND ($5::text IS NULL OR channel = $5)
  AND ($6::text IS NULL OR provider = $6)
  AND ($7::text IS NULL OR reason = $7)
  AND ($8::text IS NULL OR strpos(error, $8) > 0)
  AND ($9::timestamptz IS NULL OR created_at <= $9)
ORDER BY id
LIMIT $10

-- name: lock_close
SELECT pg_try_advisory_xact_lock_shared(hashtextextended('campanile.history', 0)) AS free

-- name: lock_replay
SELECT pg_advisory_xact_lock(hashtextextended('campanile.history', 0))

-- name: lock_republish
SELECT pg_advisory_xact_lock(hashtextextended('campanile.republish', 0))

-- name: lock_retain
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.history', 0)) AS alone

-- name: lost_rows
SELECT o.notification_id, o.channel, o.queue, o.priority
FROM (SELECT event_id FROM campanile.event_outbox WHERE status = 'PUBLISHED'
      UNION ALL
      SELECT event_id FROM campanile.event_outbox WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL) e
JOIN campanile.outbox o ON o.event_id = e.event_id
LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
LEFT JOIN campanile.publish_chunk c ON c.id = o.chunk_id
WHERE o.status IS NULL AND s.channel IS NULL AND c.id IS NULL
  AND o.queue = ANY ($1::text[]) AND o.created_at <= campanile.now() - make_interval(secs => $2)
LIMIT $3

-- name: mark_replayed
UPDATE campanile.dead_letter SET replayed_at = campanile.now() WHERE id = $1 AND replayed_at IS NULL

-- name: next_due
SELECT min(first.due_at) AS due_at
FROM generate_series(0, 2) AS l (lane)
CROSS JOIN LATERAL (SELECT due_at FROM campanile.send_due WHERE channel = $1 AND lane = l.lane::smallint
                    ORDER BY due_at LIMIT 1) first

-- name: now
SELECT campanile.now()

-- name: open_events
SELECT id, event_id FROM campanile.event_outbox WHERE status = 'PUBLISHED' AND id > $1 ORDER BY id LIMIT $2

-- name: page_entity
SELECT p.page, r.user_type::text, r.user_id::text, r.entity_type::text, r.entity_id::text, r.role::text, r.name::text, r.email::text,
       r.phone::text, to_json(r.push_tokens)::text AS push_tokens, r.slack_webhook::text, r.locale::text, r.time_zone::text
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::json[], $8::bigint[])
     AS p (page, user_type, entity_type, entity_id, rank, user_id, roles, max_rows)
CROSS JOIN LATERAL (
    SELECT * FROM campanile.recipient r
    WHERE r.user_type = p.user_type AND coalesce(r.entity_id, '') = p.entity_id AND r.active
      AND ((CASE WHEN r.role = 'MANAGER' THEN 0 ELSE 1 END), r.user_id COLLATE "C") > (p.rank, p.user_id)
      AND r.entity_type = p.entity_type
      AND (p.roles IS NULL OR r.role IN (SELECT json_array_elements_text(p.roles)))
    ORDER BY (CASE WHEN r.role = 'MANAGER' THEN 0 ELSE 1 END), r.user_id COLLATE "C"
    LIMIT p.max_rows) r

-- name: page_everybody
SELECT p.page, r.user_type::text, r.user_id::text, r.entity_type::text, r.entity_id::text, r.role::text, r.name::text, r.email::text,
       r.phone::text, to_json(r.push_tokens)::text AS push_tokens, r.slack_webhook::text, r.locale::text, r.time_zone::text
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::json[], $8::bigint[])
     AS p (page, user_type, entity_type, entity_id, rank, user_id, roles, max_rows)
CROSS JOIN LATERAL (
    SELECT * FROM campanile.recipient r
    WHERE r.user_type = p.user_type AND r.active
      AND (coalesce(r.entity_id, '') COLLATE "C", (CASE WHEN r.role = 'MANAGER' THEN 0 ELSE 1 END), r.user_id COLLATE "C")
          > (p.entity_id, p.rank, p.user_id)
      AND (p.roles IS NULL OR r.role IN (SELECT json_array_elements_text(p.roles)))
    ORDER BY coalesce(r.entity_id, '') COLLATE "C", (CASE WHEN r.role = 'MANAGER' THEN 0 ELSE 1 END), r.user_id COLLATE "C"
    LIMIT p.max_rows) r

-- name: page_user
SELECT p.page, r.user_type::text, r.user_id::text, r.entity_type::text, r.entity_id::text, r.role::text, r.name::text, r.email::text,
       r.phone::text, to_json(r.push_tokens)::text AS push_tokens, r.slack_webhook::text, r.locale::text, r.time_zone::text
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::json[], $8::bigint[])
     AS p (page, user_type, entity_type, entity_id, rank, user_id, roles, max_rows)
CROSS JOIN LATERAL (
    SELECT * FROM campanile.recipient r
    WHERE r.user_type = p.user_type AND r.user_id = p.user_id AND coalesce(r.active, false)
      AND (p.roles IS NULL OR r.role IN (SELECT json_array_elements_text(p.roles)))
    LIMIT p.max_rows) r

-- name: preferences_of
SELECT p.user_type, p.user_id, p.channel, p.event_type, p.enabled, p.min_priority, p.quiet_hours_start, p.quiet_hours_end,
       p.quiet_hours_mode
FROM unnest($1::text[], $2::text[]) AS u (user_type, user_id)
JOIN campanile.user_notification_preferences p ON p.user_type = u.user_type AND p.user_id = u.user_id

-- name: receive_notification
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

-- name: receive_row
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, 0 AS attempt_count, o.status IS NULL AND n.id IS NULL AS duplicate
FROM unnest($1::uuid[], $2::text[]) AS k (notification_id, channel)
JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel
JOIN campanile.event_outbox e ON e.event_id = o.event_id
LEFT JOIN campanile.notification n ON n.id = o.notification_id

-- name: receive_send
WITH fresh AS (
    SELECT o.notification_id, o.channel, o.recipient_address, o.priority,
           CASE WHEN o.channel = 'WEBSOCKET' THEN 'SENT' WHEN k.claim THEN 'SENDING' ELSE 'DUE' END AS status
    FROM unnest($1::uuid[], $2::text[], $3::boolean[]) AS k (notification_id, channel, claim)
    JOIN campanile.outbox o ON o.notification_id = k.notification_id AND o.channel = k.channel AND o.status IS NULL
    JOIN campanile.notification n ON n.id = o.notification_id
    LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
    WHERE s.channel IS NULL),
claimed AS (
    INSERT INTO campanile.send_claim (instance, lease_until, notifications)
    SELECT $4, campanile.now() + make_interval(secs => $5), array_agg(DISTINCT notification_id)
    FROM fresh WHERE status = 'SENDING'
    HAVING count(*) > 0
    RETURNING id),
waiting AS (
    INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
    SELECT channel, CASE priority WHEN 'HIGH' THEN 0 WHEN 'NORMAL' THEN 1 ELSE 2 END, campanile.now(), notification_id
    FROM fresh WHERE status = 'DUE'
    ON CONFLICT DO NOTHING)
INSERT INTO campanile.send (notification_id, channel, recipient_address, status, attempt_count, lease, provider, created_at,
                            sent_at)
SELECT notification_id, channel, recipient_address, status, CASE WHEN status = 'SENT' THEN 1 ELSE 0 END,
       CASE WHEN status = 'SENDING' THEN (SELECT id FROM claimed) END,
       CASE WHEN status = 'SENT' THEN 'realtime' END, campanile.now(), CASE WHEN status = 'SENT' THEN campanile.now() END
FROM fresh
ORDER BY notification_id, channel
ON CONFLICT (notification_id, channel) DO NOTHING
RETURNING notification_id, channel, status, lease

-- name: recipient_kind
SELECT c.relkind FROM pg_class c WHERE c.oid = to_regclass('campanile.recipient')

-- name: refuse_row
UPDATE campanile.outbox o
SET retry_count = o.retry_count + 1, last_error = r.error,
    status = CASE WHEN o.retry_count + 1 >= $4 THEN 'FAILED' END
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS r (notification_id, channel, error)
WHERE o.notification_id = r.notification_id AND o.channel = r.channel AND o.status IS NULL
  AND NOT EXISTS (SELECT FROM campanile.send s WHERE s.notification_id = o.notification_id AND s.channel = o.channel)
RETURNING o.notification_id, o.channel, o.status, o.last_error, o.event_id, o.recipient_type, o.recipient_id

-- name: release_chunk
UPDATE campanile.publish_chunk SET lease_until = campanile.now() + make_interval(secs => $2::float8) WHERE id = $1

-- name: remember_event
INSERT INTO campanile.processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, $2, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', campanile.now()
FROM campanile.event_outbox
WHERE id = $1
ON CONFLICT (event_id) DO NOTHING

-- name: reopen_event
UPDATE campanile.event_outbox SET status = 'PUBLISHED', processed_at = NULL WHERE event_id = $1 AND status = 'PROCESSED'

-- name: replay_event
UPDATE campanile.event_outbox
SET status = 'PENDING', retry_count = 0, last_error = NULL, fan_out_cursor = NULL
WHERE id = (SELECT id FROM campanile.event_outbox WHERE event_id = $1) AND status = 'FAILED'

-- name: replay_row
UPDATE campanile.outbox
SET status = NULL, retry_count = 0, last_error = NULL
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'

-- name: replay_send
UPDATE campanile.send SET status = 'DUE', attempt_count = 0
WHERE notification_id = $1 AND channel = $2 AND status = 'FAILED'

-- name: retain_page
SELECT id, created_at < campanile.now() - make_interval(secs => $1) AS is_old,
       status IN ('PROCESSED', 'FAILED', 'CANCELLED') AS is_closed
FROM campanile.event_outbox
WHERE id > $2
ORDER BY id
LIMIT $3

-- name: rows_done_with
SELECT o.notification_id, o.channel
FROM campanile.outbox o
LEFT JOIN campanile.send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)
  AND (s.status IN ('SENT', 'FAILED', 'CANCELLED') OR s.status IS NULL AND o.status IS NOT NULL)
LIMIT $2

-- name: rows_left
SELECT FROM campanile.outbox WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) LIMIT 1

-- name: rule_version
SELECT version FROM campanile.rule_version

-- name: settle_send
UPDATE campanile.send s
SET status = o.status, attempt_count = o.attempt_count, lease = NULL, external_id = o.external_id,
    sent_at = CASE WHEN o.status = 'SENT' THEN campanile.now() END,
    provider = CASE WHEN o.attempted THEN o.provider ELSE s.provider END,
    last_error = CASE WHEN o.attempted THEN o.last_error ELSE coalesce(o.last_error, s.last_error) END
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::int[], $6::boolean[], $7::text[], $8::text[], $9::text[])
     AS o (notification_id, channel, lease, status, attempt_count, attempted, provider, external_id, last_error)
WHERE s.notification_id = o.notification_id AND s.channel = o.channel AND s.lease = o.lease AND s.status = 'SENDING'
RETURNING s.notification_id, s.channel

-- name: take_due
WITH taken AS (
    DELETE FROM campanile.send_due d
    USING (SELECT channel, lane, due_at, notification_id FROM campanile.send_due
           WHERE channel = $1 AND lane = $2 AND due_at <= campanile.now()
           ORDER BY due_at, notification_id
           LIMIT $3
           FOR UPDATE SKIP LOCKED) q
    WHERE d.channel = q.channel AND d.lane = q.lane AND d.due_at = q.due_at AND d.notification_id = q.notification_id
    RETURNING d.channel, d.due_at, d.notification_id),
claimed AS (
    INSERT INTO campanile.send_claim (instance, lease_until, notifications)
    SELECT $4, campanile.now() + make_interval(secs => $5), array_agg(notification_id) FROM taken
    HAVING count(*) > 0
    RETURNING id),
started AS (
    UPDATE campanile.send s SET status = 'SENDING', lease = claimed.id
    FROM taken, claimed
    WHERE s.notification_id = taken.notification_id AND s.channel = taken.channel AND s.status = 'DUE'
    RETURNING s.notification_id, s.channel, s.attempt_count, s.lease AS claim, taken.due_at)
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, started.attempt_count, started.claim, started.due_at
FROM started
JOIN campanile.outbox o ON o.notification_id = started.notification_id AND o.channel = started.channel
JOIN campanile.event_outbox e ON e.event_id = o.event_id

-- name: tell
SELECT pg_notify('campanile', $1)

-- name: trace_dead_letters
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, created_at, replayed_at
FROM campanile.dead_letter
WHERE event_id = $1
  AND ($3::text IS NULL OR recipient_id IS NULL OR (recipient_type, recipient_id) = ($2, $3))
ORDER BY id
LIMIT 1000

-- name: trace_event
SELECT e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.status, e.retry_count, e.last_error,
       e.occurred_at, e.created_at, e.published_at, e.processed_at
FROM campanile.event_outbox e
WHERE e.event_id = $1

-- name: trace_notifications
SELECT id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties, priority, shared_read,
       read_at, archived_at, created_at
FROM campanile.notification
WHERE event_id = $1 AND (user_type, user_id) >= ($2, $3) AND (user_type, user_id) <= ($4, $5)
ORDER BY user_type, user_id

-- name: trace_outbox
SELECT id, event_id, recipient_type, recipient_id, channel, title, body, recipient_address, priority, available_at, status, retry_count,
       last_error, created_at, notification_id, audience, entity_type, entity_id, shared_read
FROM campanile.notification_outbox
WHERE event_id = $1 AND (recipient_type, recipient_id) >= ($2, $3) AND (recipient_type, recipient_id) <= ($4, $5)
ORDER BY recipient_type, recipient_id, channel

-- name: trace_people
SELECT r.user_type::text, r.user_id::text, r.name::text, r.role::text
FROM campanile.processed_event p
CROSS JOIN LATERAL json_array_elements(p.decisions) d
CROSS JOIN LATERAL (SELECT v.user_type, v.user_id, v.name, v.role FROM campanile.recipient v
                    WHERE v.user_type = d ->> 'user_type' AND v.user_id = d ->> 'user_id' OFFSET 0) r
WHERE p.event_id = $1 AND p.decisions IS NOT NULL

-- name: trace_processed
SELECT status, recipients, sends, counts, decisions, instance, created_at FROM campanile.processed_event WHERE event_id = $1

-- name: trace_sends
SELECT n.user_type, n.user_id, s.id, s.notification_id, s.channel, s.recipient_address, s.status, s.attempt_count,
       s.next_attempt_at, s.lease, s.lease_until, s.provider, s.external_id, s.receipt, s.receipt_at, s.last_error, s.created_at,
       s.sent_at,
       (SELECT coalesce(json_agg(json_build_object('at', to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                                                   'provider', a.provider, 'outcome', a.outcome, 'error', a.error,
                                                   'duration_ms', a.duration_ms) ORDER BY a.id), '[]')
        FROM campanile.send_attempt a WHERE a.notification_id = s.notification_id AND a.channel = s.channel) AS attempts
FROM campanile.notification n
CROSS JOIN LATERAL (SELECT * FROM campanile.notification_channel_send v WHERE v.notification_id = n.id OFFSET 0) s
WHERE n.event_id = $1 AND (n.user_type, n.user_id) >= ($2, $3) AND (n.user_type, n.user_id) <= ($4, $5)
ORDER BY n.user_type, n.user_id, s.channel

-- name: trace_users
SELECT recipient_type, recipient_id
FROM (SELECT DISTINCT recipient_type, recipient_id
      FROM campanile.outbox
      WHERE event_id = $1 AND (recipient_type, recipient_id) >= ($2, $3)
      ORDER BY recipient_type, recipient_id
      LIMIT $4) page
ORDER BY recipient_type DESC, recipient_id DESC
LIMIT 1

-- name: write_processed
INSERT INTO campanile.processed_event AS p (event_id, body_hash, status, recipients, sends, counts, decisions, instance, created_at)
SELECT n.event_id, n.body_hash, n.status, n.recipients, n.sends, n.counts::json, n.decisions::json, $8, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
     AS n (event_id, body_hash, status, recipients, sends, counts, decisions)
ORDER BY n.event_id
ON CONFLICT (event_id) DO UPDATE
SET body_hash = excluded.body_hash, status = excluded.status, recipients = excluded.recipients, sends = excluded.sends,
    counts = excluded.counts, decisions = excluded.decisions, instance = excluded.instance
WHERE p.status <> 'SUCCESS'

-- name: put recipients
INSERT INTO campanile.recipient ("user_type", "user_id", "entity_type", "entity_id", "role", "name", "email", "phone", "push_tokens", "slack_webhook", "locale", "time_zone", "active") SELECT "user_type", "user_id", "entity_type", "entity_id", "role", "name", "email", "phone", "push_tokens", "slack_webhook", "locale", "time_zone", "active" FROM json_to_recordset($1::json) AS n ("user_type" text, "user_id" text, "entity_type" text, "entity_id" text, "role" text, "name" text, "email" text, "phone" text, "push_tokens" json, "slack_webhook" text, "locale" text, "time_zone" text, "active" boolean)
         ORDER BY user_type, user_id ON CONFLICT (user_type, user_id) DO UPDATE SET "entity_type" = excluded."entity_type", "entity_id" = excluded."entity_id", "role" = excluded."role", "name" = excluded."name", "email" = excluded."email", "phone" = excluded."phone", "push_tokens" = excluded."push_tokens", "slack_webhook" = excluded."slack_webhook", "locale" = excluded."locale", "time_zone" = excluded."time_zone", "active" = excluded."active"

-- name: delete recipients
DELETE FROM campanile.recipient WHERE "user_type" = $1 AND "user_id" = $2

-- name: list recipients
SELECT "user_type", "user_id", "entity_type", "entity_id", "role", "name", "email", "phone", to_json("push_tokens") AS "push_tokens", "slack_webhook", "locale", "time_zone", "active" FROM campanile.recipient ORDER BY "user_type" COLLATE "C", "user_id" COLLATE "C" LIMIT $1

-- name: put entities
INSERT INTO campanile.entity ("entity_type", "entity_id", "kind", "name") SELECT "entity_type", "entity_id", "kind", "name" FROM json_to_recordset($1::json) AS n ("entity_type" text, "entity_id" text, "kind" text, "name" text)
         ORDER BY entity_type, entity_id ON CONFLICT (entity_type, entity_id) DO UPDATE SET "kind" = excluded."kind", "name" = excluded."name"

-- name: delete entities
DELETE FROM campanile.entity WHERE "entity_type" = $1 AND "entity_id" = $2

-- name: list entities
SELECT "entity_type", "entity_id", "kind", "name" FROM campanile.entity ORDER BY "entity_type" COLLATE "C", "entity_id" COLLATE "C" LIMIT $1

-- name: put preferences
INSERT INTO campanile.user_notification_preferences ("user_type", "user_id", "channel", "event_type", "enabled", "min_priority", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode") SELECT "user_type", "user_id", "channel", "event_type", "enabled", "min_priority", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode" FROM json_to_recordset($1::json) AS n ("user_type" text, "user_id" text, "channel" text, "event_type" text, "enabled" boolean, "min_priority" text, "quiet_hours_start" text, "quiet_hours_end" text, "quiet_hours_mode" text)
         ORDER BY user_type, user_id, channel, event_type ON CONFLICT (user_type, user_id, channel, event_type) DO UPDATE SET "enabled" = excluded."enabled", "min_priority" = excluded."min_priority", "quiet_hours_start" = excluded."quiet_hours_start", "quiet_hours_end" = excluded."quiet_hours_end", "quiet_hours_mode" = excluded."quiet_hours_mode"

-- name: delete preferences
DELETE FROM campanile.user_notification_preferences WHERE "user_type" = $1 AND "user_id" = $2 AND "channel" = $3 AND "event_type" = $4

-- name: list preferences
SELECT "user_type", "user_id", "channel", "event_type", "enabled", "min_priority", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode" FROM campanile.user_notification_preferences ORDER BY "user_type" COLLATE "C", "user_id" COLLATE "C", "channel" COLLATE "C", "event_type" COLLATE "C" LIMIT $1

-- name: put settings
INSERT INTO campanile.entity_notification_settings ("entity_type", "entity_id", "kind", "channel", "event_type", "enabled", "max_recipients", "roles", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode") SELECT "entity_type", "entity_id", "kind", "channel", "event_type", "enabled", "max_recipients", "roles", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode" FROM json_to_recordset($1::json) AS n ("entity_type" text, "entity_id" text, "kind" text, "channel" text, "event_type" text, "enabled" boolean, "max_recipients" bigint, "roles" json, "quiet_hours_start" text, "quiet_hours_end" text, "quiet_hours_mode" text)
         ORDER BY entity_type, entity_id, kind, channel, event_type ON CONFLICT (entity_type, entity_id, kind, channel, event_type) DO UPDATE SET "enabled" = excluded."enabled", "max_recipients" = excluded."max_recipients", "roles" = excluded."roles", "quiet_hours_start" = excluded."quiet_hours_start", "quiet_hours_end" = excluded."quiet_hours_end", "quiet_hours_mode" = excluded."quiet_hours_mode"

-- name: delete settings
DELETE FROM campanile.entity_notification_settings WHERE "entity_type" = $1 AND "entity_id" = $2 AND "kind" = $3 AND "channel" = $4 AND "event_type" = $5

-- name: list settings
SELECT "entity_type", "entity_id", "kind", "channel", "event_type", "enabled", "max_recipients", to_json("roles") AS "roles", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode" FROM campanile.entity_notification_settings ORDER BY "entity_type" COLLATE "C", "entity_id" COLLATE "C", "kind" COLLATE "C", "channel" COLLATE "C", "event_type" COLLATE "C" LIMIT $1

-- name: put routing
INSERT INTO campanile.event_type_channel_routing ("event_type", "channel", "mandatory", "delivery_strategy", "priority") SELECT "event_type", "channel", "mandatory", "delivery_strategy", "priority" FROM json_to_recordset($1::json) AS n ("event_type" text, "channel" text, "mandatory" boolean, "delivery_strategy" text, "priority" text)
         ORDER BY event_type, channel ON CONFLICT (event_type, channel) DO UPDATE SET "mandatory" = excluded."mandatory", "delivery_strategy" = excluded."delivery_strategy", "priority" = excluded."priority"

-- name: delete routing
DELETE FROM campanile.event_type_channel_routing WHERE "event_type" = $1 AND "channel" = $2

-- name: list routing
SELECT "event_type", "channel", "mandatory", "delivery_strategy", "priority" FROM campanile.event_type_channel_routing ORDER BY "event_type" COLLATE "C", "channel" COLLATE "C" LIMIT $1

-- name: put audiences
INSERT INTO campanile.event_audience ("event_type", "name", "recipient_type", "entity_path", "roles", "scope", "shared_read", "when") SELECT "event_type", "name", "recipient_type", "entity_path", "roles", "scope", "shared_read", "when" FROM json_to_recordset($1::json) AS n ("event_type" text, "name" text, "recipient_type" text, "entity_path" text, "roles" json, "scope" text, "shared_read" boolean, "when" text)
         ORDER BY event_type, name ON CONFLICT (event_type, name) DO UPDATE SET "recipient_type" = excluded."recipient_type", "entity_path" = excluded."entity_path", "roles" = excluded."roles", "scope" = excluded."scope", "shared_read" = excluded."shared_read", "when" = excluded."when"

-- name: delete audiences
DELETE FROM campanile.event_audience WHERE "event_type" = $1 AND "name" = $2

-- name: list audiences
SELECT "event_type", "name", "recipient_type", "entity_path", to_json("roles") AS "roles", "scope", "shared_read", "when" FROM campanile.event_audience ORDER BY "event_type" COLLATE "C", "name" COLLATE "C" LIMIT $1

-- name: put templates
INSERT INTO campanile.template ("event_type", "channel", "locale", "title", "body", "html") SELECT "event_type", "channel", "locale", "title", "body", "html" FROM json_to_recordset($1::json) AS n ("event_type" text, "channel" text, "locale" text, "title" text, "body" text, "html" text)
         ORDER BY event_type, channel, locale ON CONFLICT (event_type, channel, locale) DO UPDATE SET "title" = excluded."title", "body" = excluded."body", "html" = excluded."html"

-- name: delete templates
DELETE FROM campanile.template WHERE "event_type" = $1 AND "channel" = $2 AND "locale" = $3

-- name: list templates
SELECT "event_type", "channel", "locale", "title", "body", "html" FROM campanile.template ORDER BY "event_type" COLLATE "C", "channel" COLLATE "C", "locale" COLLATE "C" LIMIT $1

-- name: search events
SELECT id, event_id, event_type, aggregate_type, aggregate_id, priority, status, retry_count, last_error,
                occurred_at, created_at, published_at, processed_at
         FROM campanile.event_outbox
         WHERE id > $1
         ORDER BY id
         LIMIT $2

-- name: a producer's event
INSERT INTO campanile.event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING

-- name: a producer's event without what it need not say
INSERT INTO campanile.event_outbox (event_id, event_type, aggregate_type, aggregate_id) VALUES ($1, $2, $3, $4)

-- name: a producer's cancel
INSERT INTO campanile.event_cancel (event_id, reason) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: a producer's call
SELECT campanile.emit($1, $2, $3, $4, $5, $6, $7)

-- name: a producer's short call
SELECT campanile.emit($1, $2, $3, $4, $5)
