//! Fills every table with rows, most of them finished, so that tests can detect a plan that scans them.

/// The SQL that fills every table with this many rows.
pub fn seed(rows: usize) -> String {
    SEED.replace(":rows", &rows.to_string())
}

const SEED: &str = r#"
CREATE TEMP TABLE n AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows) SELECT i FROM n;

INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, status, fan_out_cursor)
SELECT 'event ' || i, 'TYPE ' || (i % 20), 'ORDER', i, '{}',
       CASE WHEN i % 50 = 0 THEN 'PUBLISHED' WHEN i % 50 IN (1, 2) THEN 'PENDING' ELSE 'PROCESSED' END,
       CASE WHEN i % 50 = 2 THEN '{}' END
FROM n;
INSERT INTO event_cancel (event_id, reason) SELECT 'event ' || i, 'why' FROM n;
INSERT INTO processed_event (event_id, body_hash, status, instance, created_at)
SELECT 'event ' || i, 'hash', 'SUCCESS', 'test', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address, title,
    body, priority,
                    audience, shared_read, queue, chunk_id, created_at)
SELECT 'notification ' || i, c.value, 'event ' || i, 'CUSTOMER', i, 'address', 'title', 'body', 'NORMAL', 'audience', 0,
       'queue ' || (i % 5), i, '2026-01-21T10:15:30.000Z'
FROM n, json_each('["EMAIL", "SMS"]') c;
INSERT INTO publish_chunk (queue, lane, first_id, last_id, lease_until)
SELECT 'queue ' || (i % 5), i % 3, 'notification ' || i, 'notification ' || i,
    CASE WHEN i % 2 THEN '2026-01-21T10:15:30.000Z' END
FROM n;
INSERT INTO event_notification (event_id, entity_type, entity_id, shared_read)
    SELECT 'event ' || i, 'RESTAURANT', i, 1 FROM n;
INSERT INTO notification (id, event_id, event_type, user_type, user_id, title, body, properties, priority,
    shared_read, created_at)
SELECT 'notification ' || i, 'event ' || i, 'TYPE', 'CUSTOMER', i, 'title', 'body', '{}', 'NORMAL', 0,
    '2026-01-21T10:15:30.000Z'
FROM n;
INSERT INTO send_claim (instance, lease_until, notifications)
    SELECT 'test', '2026-01-21T10:15:30.' || (i % 1000), '[]' FROM n;
INSERT INTO send (notification_id, channel, recipient_address, status, lease, created_at)
SELECT 'notification ' || i, c.value, 'address', 'SENT', i, '2026-01-21T10:15:30.000Z'
    FROM n, json_each('["EMAIL", "SMS"]') c;
INSERT INTO send_due (channel, lane, due_at, notification_id)
SELECT 'EMAIL', i % 3, '2026-01-21T10:15:30.' || (i % 1000), 'notification ' || i FROM n;
INSERT INTO send_attempt (notification_id, channel, at, outcome, duration_ms)
SELECT 'notification ' || i, 'EMAIL', '2026-01-21T10:15:30.000Z', 'DUE', 5 FROM n;
INSERT INTO send_in_doubt (since, notification_id, channel)
SELECT '2026-01-21T10:15:30.' || (i % 1000), 'notification ' || i, 'EMAIL' FROM n;
INSERT INTO send_address (notification_id, channel, address, outcome, at)
SELECT 'notification ' || i, 'EMAIL', 'address', 'SENT', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO send_once (event_id, channel, address_hash, notification_id, at)
SELECT 'event ' || i, 'SLACK', 'hash', 'notification ' || i, '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO captured_message (event_id, user_type, user_id, channel, address, title, body, at)
SELECT 'event ' || i, 'CUSTOMER', i, 'EMAIL', 'address', 'title', 'body', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO dead_letter (stage, event_id, reason, error, created_at)
SELECT 'send', 'event ' || i, 'EXHAUSTED', 'busy', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO lease (name, holder, lease_until) SELECT 'lease ' || i, 'test', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO entity (entity_type, entity_id, kind) SELECT 'RESTAURANT', i, 'KIND ' || (i % 5) FROM n;
INSERT INTO recipient (user_type, user_id, entity_type, entity_id, role, active)
SELECT 'RESTAURANT_USER', i, 'RESTAURANT', i / 5, CASE WHEN i % 5 = 0 THEN 'MANAGER' ELSE 'WAITER' END,
    i % 20 <> 0 FROM n;
INSERT INTO api_key (id, name, prefix, hash, scopes, created_at)
SELECT 'key ' || i, 'name', 'cpk_' || i, 'hash', '[]', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO audit (at, actor_kind, actor_id, actor_name, action, object_type, object_id)
SELECT '2026-01-21T10:15:30.000Z', 'API_KEY', 'key ' || (i % 20), 'name', 'PUT', 'type ' || (i % 10), i FROM n;
INSERT INTO idempotency_key (caller, key, request_hash, fence, created_at, lease_until)
SELECT 'key ' || (i % 20), i, 'hash', 1, '2026-01-21T10:15:30.' || (i % 1000), '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO dead_address (channel, address, reason, at) SELECT 'EMAIL', i, 'gone', '2026-01-21T10:15:30.000Z' FROM n;
INSERT INTO user_notification_preferences (user_type, user_id, channel) SELECT 'CUSTOMER', i, 'EMAIL' FROM n;
INSERT INTO entity_notification_settings (entity_type, entity_id, kind, channel)
SELECT 'RESTAURANT', CASE WHEN i % 50 = 0 THEN '*' ELSE i END,
    CASE WHEN i % 50 = 0 THEN 'KIND ' || i ELSE '*' END, 'EMAIL' FROM n;
INSERT INTO event_type_channel_routing (event_type, channel) SELECT 'TYPE ' || i, 'EMAIL' FROM n;
INSERT INTO event_audience (event_type, name, recipient_type) SELECT 'TYPE ' || i, 'all', 'CUSTOMER' FROM n;
INSERT INTO template (event_type, title) SELECT 'TYPE ' || i, 'title' FROM n;
"#;
