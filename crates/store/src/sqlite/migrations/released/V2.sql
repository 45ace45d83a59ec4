-- What the release with V2 says to the database: its statements, and what it lets producers write. It is never edited: later
-- migrations have to leave all of it working (decision 0015).

-- name: accept_event
INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at, created_at)
VALUES (:event_id, :event_type, :aggregate_type, :aggregate_id, :payload, :priority, :occurred_at, :now)
ON CONFLICT (event_id) DO NOTHING

-- name: assign_chunk
UPDATE outbox SET chunk_id = :chunk_id WHERE notification_id = :notification_id AND channel = :channel

-- name: cancel_row
UPDATE outbox SET status = 'CANCELLED', last_error = :error
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL

-- name: chunk_rows
SELECT o.notification_id, o.channel, o.recipient_type, o.recipient_id, o.recipient_address, o.title, o.body, o.priority,
       o.audience, o.entity_type, o.entity_id, o.shared_read, o.queue,
       e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority AS event_priority, e.occurred_at,
       e.created_at
FROM outbox o
JOIN event_outbox e ON e.event_id = o.event_id
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.notification_id BETWEEN :first_id AND :last_id
  AND o.chunk_id = :chunk_id AND o.status IS NULL AND s.channel IS NULL

-- name: claim_chunk
UPDATE publish_chunk
SET lease_until = :lease_until
WHERE id = (
    SELECT id FROM publish_chunk
    WHERE queue = :queue AND (lease_until IS NULL OR lease_until < :now)
    ORDER BY lane, id
    LIMIT 1)
RETURNING id, queue, lane, first_id, last_id

-- name: claim_fresh
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.occurred_at, e.created_at,
       e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason
FROM event_outbox e
LEFT JOIN processed_event p ON p.event_id = e.event_id
LEFT JOIN event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NULL
ORDER BY e.lane, e.id
LIMIT :limit

-- name: claim_these
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.occurred_at, e.created_at,
       e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason
FROM json_each(:ids) j
JOIN event_outbox e ON e.id = j.value
LEFT JOIN processed_event p ON p.event_id = e.event_id
LEFT JOIN event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING'
ORDER BY e.lane, e.id

-- name: claim_unfinished
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.occurred_at, e.created_at,
       e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason
FROM event_outbox e
LEFT JOIN processed_event p ON p.event_id = e.event_id
LEFT JOIN event_cancel c ON c.event_id = e.event_id
WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NOT NULL
ORDER BY e.lane, e.id <= :after, e.id
LIMIT 1

-- name: claimed_jobs
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, s.attempt_count
FROM json_each(:notifications) n
JOIN send s ON s.notification_id = n.value AND s.status = 'SENDING' AND s.lease = :lease
JOIN outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
JOIN event_outbox e ON e.event_id = o.event_id

-- name: close_events
UPDATE event_outbox
SET status = 'PROCESSED', processed_at = :now
WHERE event_id IN (SELECT value FROM json_each(:event_ids))
  AND status = 'PUBLISHED'
  AND (SELECT 1
       FROM outbox o
       LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
       WHERE o.event_id = event_outbox.event_id AND o.status IS NULL AND s.channel IS NULL
       ORDER BY o.recipient_type DESC, o.recipient_id DESC, o.channel DESC
       LIMIT 1) IS NULL

-- name: confirm_rows
UPDATE outbox
SET chunk_id = NULL
WHERE chunk_id = :chunk_id
  AND notification_id BETWEEN (SELECT first_id FROM publish_chunk WHERE id = :chunk_id)
                          AND (SELECT last_id FROM publish_chunk WHERE id = :chunk_id)
  AND notification_id || ':' || channel NOT IN (SELECT value FROM json_each(:refused))

-- name: count_failure
UPDATE event_outbox
SET retry_count = retry_count + 1, last_error = :error
WHERE id = :id AND status = 'PENDING'
RETURNING retry_count, event_id

-- name: dead_addresses_of
SELECT d.channel, d.address, d.reason
FROM json_each(:addresses) a
JOIN dead_address d ON d.channel = json_extract(a.value, '$[0]') AND d.address = json_extract(a.value, '$[1]')

-- name: default_settings
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.roles, s.quiet_hours_start,
       s.quiet_hours_end, s.quiet_hours_mode
FROM entity_notification_settings s
WHERE s.entity_id = '*'
ORDER BY s.entity_type

-- name: delete_attempts
DELETE FROM send_attempt WHERE notification_id = :notification_id AND channel = :channel

-- name: delete_cancel
DELETE FROM event_cancel WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)

-- name: delete_captured_of
DELETE FROM captured_message
WHERE id IN (SELECT id FROM captured_message WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) LIMIT :limit)

-- name: delete_chunk
DELETE FROM publish_chunk WHERE id = :id

-- name: delete_claim
DELETE FROM send_claim WHERE id = :id

-- name: delete_event
DELETE FROM event_outbox WHERE id = :id

-- name: delete_letters_of
DELETE FROM dead_letter
WHERE id IN (SELECT id FROM dead_letter WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) LIMIT :limit)

-- name: delete_notification
DELETE FROM notification
WHERE id = :notification_id AND NOT EXISTS (SELECT 1 FROM outbox WHERE notification_id = :notification_id)

-- name: delete_old_captured
DELETE FROM captured_message
WHERE id IN (SELECT id FROM (SELECT id, at FROM captured_message ORDER BY id LIMIT :limit) WHERE at < :before)

-- name: delete_row
DELETE FROM outbox WHERE notification_id = :notification_id AND channel = :channel

-- name: delete_send
DELETE FROM send WHERE notification_id = :notification_id AND channel = :channel

-- name: delete_shared_of
DELETE FROM event_notification
WHERE (event_id, entity_type, entity_id) IN (
    SELECT event_id, entity_type, entity_id FROM event_notification
    WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
    LIMIT :limit)

-- name: delete_stray_letters
DELETE FROM dead_letter
WHERE id IN (
    SELECT id
    FROM (SELECT id, created_at FROM dead_letter WHERE event_id IS NULL ORDER BY id LIMIT :limit)
    WHERE created_at < :before)

-- name: event_status
SELECT status FROM event_outbox WHERE event_id = :event_id

-- name: expire_leases
UPDATE send_claim SET lease_until = '' WHERE lease_until > ''

-- name: expired_claims
SELECT id, notifications FROM send_claim WHERE lease_until < :now ORDER BY lease_until LIMIT :limit

-- name: fail_row
UPDATE outbox SET status = 'FAILED', last_error = :error
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
  AND NOT EXISTS (SELECT 1 FROM send s WHERE s.notification_id = outbox.notification_id AND s.channel = outbox.channel)
RETURNING event_id, recipient_type, recipient_id

-- name: fill_claim
UPDATE send_claim SET notifications = :notifications WHERE id = :id

-- name: finish_event
UPDATE event_outbox
SET status = :status, fan_out_cursor = :cursor_after, last_error = :error,
    published_at = CASE WHEN :status = 'PUBLISHED' OR :status = 'PROCESSED' THEN :now ELSE published_at END,
    processed_at = CASE WHEN :status = 'PROCESSED' THEN :now ELSE processed_at END
WHERE id = :id AND status = 'PENDING' AND fan_out_cursor IS :cursor_before

-- name: forget_decisions
UPDATE processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) AND decisions IS NOT NULL

-- name: forgotten_event
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.occurred_at, e.created_at
FROM event_outbox e
WHERE e.id = :id AND NOT EXISTS (SELECT 1 FROM processed_event p WHERE p.event_id = e.event_id)

-- name: give_up_event
UPDATE event_outbox
SET (status, published_at) = (
        SELECT CASE WHEN count(*) > 0 THEN 'PUBLISHED' ELSE 'FAILED' END,
               CASE WHEN count(*) > 0 THEN :now ELSE event_outbox.published_at END
        FROM processed_event p
        WHERE p.event_id = event_outbox.event_id AND p.status = 'PROCESSING' AND p.recipients > 0),
    last_error = :error, fan_out_cursor = NULL
WHERE id = :id AND status = 'PENDING'

-- name: give_up_processed
UPDATE processed_event
SET status = CASE WHEN recipients > 0 THEN 'SUCCESS' ELSE 'FAILED' END
WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) AND status = 'PROCESSING'

-- name: group_settings
SELECT s.entity_type, s.entity_id, s.kind, s.channel, s.event_type, s.enabled, s.max_recipients, s.roles, s.quiet_hours_start,
       s.quiet_hours_end, s.quiet_hours_mode
FROM json_each(:entities) j
JOIN entity_notification_settings s
  ON s.entity_type = json_extract(j.value, '$[0]') AND s.entity_id = json_extract(j.value, '$[1]')

-- name: groups
SELECT e.entity_type, e.entity_id, e.kind
FROM json_each(:entities) j
JOIN entity e ON e.entity_type = json_extract(j.value, '$[0]') AND e.entity_id = json_extract(j.value, '$[1]')

-- name: hold_lease
INSERT INTO lease (name, holder, lease_until) VALUES (:name, :holder, :lease_until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
WHERE lease.holder = excluded.holder OR lease.lease_until <= :now

-- name: insert_attempt
INSERT INTO send_attempt (notification_id, channel, at, provider, outcome, error, duration_ms)
VALUES (:notification_id, :channel, :at, :provider, :outcome, :error, :duration_ms)

-- name: insert_captured
INSERT INTO captured_message (event_id, user_type, user_id, channel, address, title, body, at)
VALUES (:event_id, :user_type, :user_id, :channel, :address, :title, :body, :at)

-- name: insert_chunk
INSERT INTO publish_chunk (queue, lane, first_id, last_id, lease_until)
VALUES (:queue, :lane, :first_id, :last_id, :lease_until)

-- name: insert_claim
INSERT INTO send_claim (instance, lease_until, notifications) VALUES (:instance, :lease_until, '[]')

-- name: insert_dead_letter
INSERT INTO dead_letter (stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at)
VALUES (:stage, :event_id, :recipient_type, :recipient_id, :channel, :provider, :reason, :error, :message, :now)

-- name: insert_due
INSERT INTO send_due (channel, lane, due_at, notification_id) VALUES (:channel, :lane, :due_at, :notification_id)

-- name: insert_event_notification
INSERT INTO event_notification (event_id, entity_type, entity_id, shared_read)
VALUES (:event_id, :entity_type, :entity_id, :shared_read)
ON CONFLICT (event_id, entity_type, entity_id) DO UPDATE SET shared_read = max(shared_read, excluded.shared_read)

-- name: insert_outbox
INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address, title, body,
                    inbox_title, inbox_body, priority, audience, entity_type, entity_id, shared_read, queue, chunk_id, status,
                    last_error, created_at)
VALUES (:notification_id, :channel, :event_id, :recipient_type, :recipient_id, :recipient_address, :title, :body,
        :inbox_title, :inbox_body, :priority, :audience, :entity_type, :entity_id, :shared_read, :queue, :chunk_id, :status,
        :last_error, :now)
ON CONFLICT DO NOTHING

-- name: known_event
SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at, created_at
FROM event_outbox
WHERE event_id = :event_id

-- name: known_hash
SELECT body_hash FROM processed_event WHERE event_id = :event_id

-- name: lease_holder
SELECT holder, lease_until FROM lease WHERE name = :name

-- name: let_lease_go
DELETE FROM lease WHERE name = :name AND holder = :holder

-- name: let_leases_go
DELETE FROM lease

-- name: letter_row
SELECT o.notification_id, o.channel, o.queue, o.priority, o.status, s.status AS send
FROM outbox o
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.event_id = :event_id AND o.recipient_type = :recipient_type AND o.recipient_id = :recipient_id AND o.channel = :channel

-- name: list_captured
SELECT id, event_id, user_type, user_id, channel, address, title, body, at
FROM captured_message
WHERE id > :after
ORDER BY id
LIMIT :limit

-- name: list_captured_of
SELECT id, event_id, user_type, user_id, channel, address, title, body, at
FROM captured_message
WHERE event_id = :event_id AND id > :after
ORDER BY id
LIMIT :limit

-- name: list_dead_letters
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM dead_letter
WHERE id > :after AND id <= :last
  AND (:replayed OR replayed_at IS NULL)
  AND (:stage IS NULL OR stage = :stage)
  AND (:channel IS NULL OR channel = :channel)
  AND (:provider IS NULL OR provider = :provider)
  AND (:reason IS NULL OR reason = :reason)
  AND (:error IS NULL OR instr(error, :error) > 0)
  AND (:until IS NULL OR created_at <= :until)
ORDER BY id
LIMIT :limit

-- name: list_dead_letters_of
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, message, created_at, replayed_at
FROM dead_letter
WHERE event_id = :event_id AND id > :after AND id <= :last
  AND (:replayed OR replayed_at IS NULL)
  AND (:stage IS NULL OR stage = :stage)
  AND (:channel IS NULL OR channel = :channel)
  AND (:provider IS NULL OR provider = :provider)
  AND (:reason IS NULL OR reason = :reason)
  AND (:error IS NULL OR instr(error, :error) > 0)
  AND (:until IS NULL OR created_at <= :until)
ORDER BY id
LIMIT :limit

-- name: lost_rows
SELECT o.notification_id, o.channel, o.queue, o.priority
FROM (SELECT event_id FROM event_outbox WHERE status = 'PUBLISHED'
      UNION ALL
      SELECT event_id FROM event_outbox WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL) e
JOIN outbox o ON o.event_id = e.event_id
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
LEFT JOIN publish_chunk c ON c.id = o.chunk_id
WHERE o.status IS NULL AND s.channel IS NULL AND c.id IS NULL
  AND o.created_at <= :written_before
  AND o.queue IN (SELECT value FROM json_each(:queues))
LIMIT :limit

-- name: mark_replayed
UPDATE dead_letter SET replayed_at = :now WHERE id = :id AND replayed_at IS NULL

-- name: next_due
SELECT min(due_at) FROM (
    SELECT (SELECT due_at FROM send_due WHERE channel = :channel AND lane = 0 ORDER BY due_at LIMIT 1) AS due_at
    UNION ALL SELECT (SELECT due_at FROM send_due WHERE channel = :channel AND lane = 1 ORDER BY due_at LIMIT 1)
    UNION ALL SELECT (SELECT due_at FROM send_due WHERE channel = :channel AND lane = 2 ORDER BY due_at LIMIT 1))

-- name: notification_of
SELECT id FROM notification WHERE event_id = :event_id AND user_type = :user_type AND user_id = :user_id

-- name: open_events
SELECT id, event_id FROM event_outbox WHERE status = 'PUBLISHED' AND id > :after ORDER BY id LIMIT :limit

-- name: page_entity
SELECT user_type, user_id, entity_type, entity_id, role, name, email, phone, push_tokens, slack_webhook, locale, time_zone, active
FROM recipient
WHERE user_type = :user_type AND entity_key = :entity_id AND active = 1
  AND (rank, user_id) > (:rank, :user_id)
  AND entity_type = :entity_type
  AND (:roles IS NULL OR role IN (SELECT value FROM json_each(:roles)))
ORDER BY rank, user_id
LIMIT :limit

-- name: page_everybody
SELECT user_type, user_id, entity_type, entity_id, role, name, email, phone, push_tokens, slack_webhook, locale, time_zone, active
FROM recipient
WHERE user_type = :user_type AND active = 1
  AND (entity_key, rank, user_id) > (:entity_id, :rank, :user_id)
  AND (:roles IS NULL OR role IN (SELECT value FROM json_each(:roles)))
ORDER BY entity_key, rank, user_id
LIMIT :limit

-- name: page_user
SELECT user_type, user_id, entity_type, entity_id, role, name, email, phone, push_tokens, slack_webhook, locale, time_zone, active
FROM recipient
WHERE user_type = :user_type AND user_id = :user_id AND active = 1
  AND (:roles IS NULL OR role IN (SELECT value FROM json_each(:roles)))

-- name: preferences_of
SELECT p.user_type, p.user_id, p.channel, p.event_type, p.enabled, p.min_priority, p.quiet_hours_start, p.quiet_hours_end,
       p.quiet_hours_mode
FROM json_each(:users) u
JOIN user_notification_preferences p
  ON p.user_type = json_extract(u.value, '$[0]') AND p.user_id = json_extract(u.value, '$[1]')

-- name: receive_notification
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

-- name: receive_row
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, 0 AS attempt_count, o.status
FROM outbox o
JOIN event_outbox e ON e.event_id = o.event_id
WHERE o.notification_id = :notification_id AND o.channel = :channel

-- name: receive_send
INSERT INTO send (notification_id, channel, recipient_address, status, attempt_count, lease, provider, created_at, sent_at)
VALUES (:notification_id, :channel, :recipient_address, :status, :attempt_count, :lease, :provider, :now, :sent_at)
ON CONFLICT (notification_id, channel) DO NOTHING

-- name: refuse_row
UPDATE outbox
SET retry_count = retry_count + 1, last_error = :error,
    status = CASE WHEN retry_count + 1 >= :max THEN 'FAILED' END
WHERE notification_id = :notification_id AND channel = :channel AND status IS NULL
  AND NOT EXISTS (SELECT 1 FROM send s WHERE s.notification_id = outbox.notification_id AND s.channel = outbox.channel)
RETURNING status, event_id, recipient_type, recipient_id

-- name: release_chunk
UPDATE publish_chunk SET lease_until = :lease_until WHERE id = :id

-- name: release_chunks
UPDATE publish_chunk SET lease_until = NULL WHERE lease_until IS NOT NULL

-- name: remember_event
INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
SELECT event_id, :body_hash, CASE status WHEN 'FAILED' THEN 'FAILED' ELSE 'SUCCESS' END, 'retain', :now
FROM event_outbox
WHERE id = :id
ON CONFLICT (event_id) DO NOTHING

-- name: reopen_event
UPDATE event_outbox SET status = 'PUBLISHED', processed_at = NULL WHERE event_id = :event_id AND status = 'PROCESSED'

-- name: replay_event
UPDATE event_outbox
SET status = 'PENDING', retry_count = 0, last_error = NULL, fan_out_cursor = NULL
WHERE event_id = :event_id AND status = 'FAILED'

-- name: replay_row
UPDATE outbox
SET status = NULL, retry_count = 0, last_error = NULL
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'

-- name: replay_send
UPDATE send SET status = 'DUE', attempt_count = 0
WHERE notification_id = :notification_id AND channel = :channel AND status = 'FAILED'

-- name: retain_page
SELECT id, created_at < :before AS is_old, status IN ('PROCESSED', 'FAILED', 'CANCELLED') AS is_closed
FROM event_outbox
WHERE id > :after
ORDER BY id
LIMIT :limit

-- name: rows_done_with
SELECT o.notification_id, o.channel
FROM outbox o
LEFT JOIN send s ON s.notification_id = o.notification_id AND s.channel = o.channel
WHERE o.event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
  AND (s.status IN ('SENT', 'FAILED', 'CANCELLED') OR s.status IS NULL AND o.status IS NOT NULL)
LIMIT :limit

-- name: rows_left
SELECT 1 FROM outbox WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) LIMIT 1

-- name: rule_version
SELECT version FROM rule_version

-- name: send_job
SELECT o.notification_id, o.channel, o.event_id, e.event_type, o.recipient_type, o.recipient_id, o.recipient_address, o.title,
       o.body, o.priority, s.attempt_count
FROM send s
JOIN outbox o ON o.notification_id = s.notification_id AND o.channel = s.channel
JOIN event_outbox e ON e.event_id = o.event_id
WHERE s.notification_id = :notification_id AND s.channel = :channel

-- name: settle_send
UPDATE send
SET status = :status, attempt_count = :attempt_count, lease = NULL, external_id = :external_id, sent_at = :sent_at,
    provider = CASE WHEN :attempted THEN :provider ELSE provider END,
    last_error = CASE WHEN :attempted THEN :last_error ELSE coalesce(:last_error, last_error) END
WHERE notification_id = :notification_id AND channel = :channel AND lease = :lease AND status = 'SENDING'

-- name: start_send
UPDATE send SET status = 'SENDING', lease = :lease
WHERE notification_id = :notification_id AND channel = :channel AND status = 'DUE'

-- name: take_due
DELETE FROM send_due
WHERE (channel, lane, due_at, notification_id) IN (
    SELECT channel, lane, due_at, notification_id FROM send_due
    WHERE channel = :channel AND lane = :lane AND due_at <= :now
    ORDER BY due_at
    LIMIT :limit)
RETURNING due_at, notification_id

-- name: trace_dead_letters
SELECT id, stage, event_id, recipient_type, recipient_id, channel, provider, reason, error, created_at, replayed_at
FROM dead_letter
WHERE event_id = :event_id
  AND (:user_id IS NULL OR recipient_id IS NULL OR (recipient_type, recipient_id) = (:user_type, :user_id))
ORDER BY id
LIMIT 1000

-- name: trace_event
SELECT e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority, e.status, e.retry_count, e.last_error,
       e.occurred_at, e.created_at, e.published_at, e.processed_at
FROM event_outbox e
WHERE e.event_id = :event_id

-- name: trace_notifications
SELECT id, event_id, event_type, user_type, user_id, entity_type, entity_id, title, body, properties, priority, shared_read,
       read_at, archived_at, created_at
FROM notification
WHERE event_id = :event_id
  AND (user_type, user_id) >= (:first_type, :first_id) AND (user_type, user_id) <= (:last_type, :last_id)
ORDER BY user_type, user_id

-- name: trace_outbox
SELECT *
FROM notification_outbox
WHERE event_id = :event_id
  AND (recipient_type, recipient_id) >= (:first_type, :first_id) AND (recipient_type, recipient_id) <= (:last_type, :last_id)
ORDER BY recipient_type, recipient_id, channel

-- name: trace_people
SELECT r.user_type, r.user_id, r.name, r.role
FROM processed_event p
JOIN json_each(p.decisions) d
JOIN recipient r ON r.user_type = json_extract(d.value, '$.user_type') AND r.user_id = json_extract(d.value, '$.user_id')
WHERE p.event_id = :event_id AND p.decisions IS NOT NULL

-- name: trace_processed
SELECT status, recipients, sends, counts, decisions, instance, created_at FROM processed_event WHERE event_id = :event_id

-- name: trace_sends
SELECT n.user_type, n.user_id, s.*,
       (SELECT json_group_array(json_object('at', a.at, 'provider', a.provider, 'outcome', a.outcome, 'error', a.error,
                                            'duration_ms', a.duration_ms))
        FROM send_attempt a WHERE a.notification_id = s.notification_id AND a.channel = s.channel) AS attempts
FROM notification n
JOIN notification_channel_send s ON s.notification_id = n.id
WHERE n.event_id = :event_id
  AND (n.user_type, n.user_id) >= (:first_type, :first_id) AND (n.user_type, n.user_id) <= (:last_type, :last_id)
ORDER BY n.user_type, n.user_id, s.channel

-- name: trace_users
SELECT recipient_type, recipient_id
FROM (SELECT DISTINCT recipient_type, recipient_id
      FROM outbox
      WHERE event_id = :event_id AND (recipient_type, recipient_id) >= (:first_type, :first_id)
      ORDER BY recipient_type, recipient_id
      LIMIT :limit)
ORDER BY recipient_type DESC, recipient_id DESC
LIMIT 1

-- name: write_processed
INSERT INTO processed_event (event_id, body_hash, status, recipients, sends, counts, decisions, instance, created_at)
VALUES (:event_id, :body_hash, :status, :recipients, :sends, :counts, :decisions, :instance, :now)
ON CONFLICT (event_id) DO UPDATE
SET body_hash = excluded.body_hash, status = excluded.status, recipients = excluded.recipients, sends = excluded.sends,
    counts = excluded.counts, decisions = excluded.decisions, instance = excluded.instance
WHERE processed_event.status <> 'SUCCESS'

-- name: put recipients
INSERT INTO recipient ("user_type", "user_id", "entity_type", "entity_id", "role", "name", "email", "phone", "push_tokens", "slack_webhook", "locale", "time_zone", "active") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_type, user_id) DO UPDATE SET "entity_type" = excluded."entity_type", "entity_id" = excluded."entity_id", "role" = excluded."role", "name" = excluded."name", "email" = excluded."email", "phone" = excluded."phone", "push_tokens" = excluded."push_tokens", "slack_webhook" = excluded."slack_webhook", "locale" = excluded."locale", "time_zone" = excluded."time_zone", "active" = excluded."active"

-- name: delete recipients
DELETE FROM recipient WHERE "user_type" = ? AND "user_id" = ?

-- name: list recipients
SELECT "user_type", "user_id", "entity_type", "entity_id", "role", "name", "email", "phone", "push_tokens", "slack_webhook", "locale", "time_zone", "active" FROM recipient ORDER BY user_type, user_id LIMIT ?

-- name: put entities
INSERT INTO entity ("entity_type", "entity_id", "kind", "name") VALUES (?, ?, ?, ?) ON CONFLICT (entity_type, entity_id) DO UPDATE SET "kind" = excluded."kind", "name" = excluded."name"

-- name: delete entities
DELETE FROM entity WHERE "entity_type" = ? AND "entity_id" = ?

-- name: list entities
SELECT "entity_type", "entity_id", "kind", "name" FROM entity ORDER BY entity_type, entity_id LIMIT ?

-- name: put preferences
INSERT INTO user_notification_preferences ("user_type", "user_id", "channel", "event_type", "enabled", "min_priority", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_type, user_id, channel, event_type) DO UPDATE SET "enabled" = excluded."enabled", "min_priority" = excluded."min_priority", "quiet_hours_start" = excluded."quiet_hours_start", "quiet_hours_end" = excluded."quiet_hours_end", "quiet_hours_mode" = excluded."quiet_hours_mode"

-- name: delete preferences
DELETE FROM user_notification_preferences WHERE "user_type" = ? AND "user_id" = ? AND "channel" = ? AND "event_type" = ?

-- name: list preferences
SELECT "user_type", "user_id", "channel", "event_type", "enabled", "min_priority", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode" FROM user_notification_preferences ORDER BY user_type, user_id, channel, event_type LIMIT ?

-- name: put settings
INSERT INTO entity_notification_settings ("entity_type", "entity_id", "kind", "channel", "event_type", "enabled", "max_recipients", "roles", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (entity_type, entity_id, kind, channel, event_type) DO UPDATE SET "enabled" = excluded."enabled", "max_recipients" = excluded."max_recipients", "roles" = excluded."roles", "quiet_hours_start" = excluded."quiet_hours_start", "quiet_hours_end" = excluded."quiet_hours_end", "quiet_hours_mode" = excluded."quiet_hours_mode"

-- name: delete settings
DELETE FROM entity_notification_settings WHERE "entity_type" = ? AND "entity_id" = ? AND "kind" = ? AND "channel" = ? AND "event_type" = ?

-- name: list settings
SELECT "entity_type", "entity_id", "kind", "channel", "event_type", "enabled", "max_recipients", "roles", "quiet_hours_start", "quiet_hours_end", "quiet_hours_mode" FROM entity_notification_settings ORDER BY entity_type, entity_id, kind, channel, event_type LIMIT ?

-- name: put routing
INSERT INTO event_type_channel_routing ("event_type", "channel", "mandatory", "delivery_strategy", "priority") VALUES (?, ?, ?, ?, ?) ON CONFLICT (event_type, channel) DO UPDATE SET "mandatory" = excluded."mandatory", "delivery_strategy" = excluded."delivery_strategy", "priority" = excluded."priority"

-- name: delete routing
DELETE FROM event_type_channel_routing WHERE "event_type" = ? AND "channel" = ?

-- name: list routing
SELECT "event_type", "channel", "mandatory", "delivery_strategy", "priority" FROM event_type_channel_routing ORDER BY event_type, channel LIMIT ?

-- name: put audiences
INSERT INTO event_audience ("event_type", "name", "recipient_type", "entity_path", "roles", "scope", "shared_read", "when") VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_type, name) DO UPDATE SET "recipient_type" = excluded."recipient_type", "entity_path" = excluded."entity_path", "roles" = excluded."roles", "scope" = excluded."scope", "shared_read" = excluded."shared_read", "when" = excluded."when"

-- name: delete audiences
DELETE FROM event_audience WHERE "event_type" = ? AND "name" = ?

-- name: list audiences
SELECT "event_type", "name", "recipient_type", "entity_path", "roles", "scope", "shared_read", "when" FROM event_audience ORDER BY event_type, name LIMIT ?

-- name: put templates
INSERT INTO template ("event_type", "channel", "locale", "title", "body", "html") VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (event_type, channel, locale) DO UPDATE SET "title" = excluded."title", "body" = excluded."body", "html" = excluded."html"

-- name: delete templates
DELETE FROM template WHERE "event_type" = ? AND "channel" = ? AND "locale" = ?

-- name: list templates
SELECT "event_type", "channel", "locale", "title", "body", "html" FROM template ORDER BY event_type, channel, locale LIMIT ?

-- name: search events
SELECT id, event_id, event_type, aggregate_type, aggregate_id, priority, status, retry_count, last_error,
                occurred_at, created_at, published_at, processed_at
         FROM event_outbox
         WHERE id > :after
         ORDER BY id
         LIMIT :limit

-- name: a producer's event
INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
VALUES (:event_id, :event_type, :aggregate_type, :aggregate_id, :payload)

-- name: a producer's cancel
INSERT INTO event_cancel (event_id) VALUES (:event_id)
