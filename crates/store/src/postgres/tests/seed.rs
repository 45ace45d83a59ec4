//! Fills every table with rows, most of them finished, so that tests can detect a plan that scans them.

/// The SQL that fills every table with this many rows.
pub fn seed(rows: usize) -> String {
    SEED.replace(":rows", &rows.to_string())
}

const SEED: &str = r"
CREATE TEMP TABLE n AS SELECT i, lpad(to_hex(i), 32, '0')::uuid AS id FROM generate_series(1, :rows) i;
CREATE TEMP TABLE c AS SELECT unnest(ARRAY['EMAIL', 'SMS']) AS channel;

INSERT INTO campanile.event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, status, fan_out_cursor)
SELECT 'event ' || i, 'TYPE ' || (i % 20), 'ORDER', i, '{}',
       CASE WHEN i % 50 = 0 THEN 'PUBLISHED' WHEN i % 50 IN (1, 2) THEN 'PENDING' WHEN i % 50 = 3 THEN 'FAILED'
            WHEN i % 50 = 4 THEN 'CANCELLED' ELSE 'PROCESSED' END,
       CASE WHEN i % 50 = 2 THEN '{}' END
FROM n;
INSERT INTO campanile.event_cancel (event_id, reason) SELECT 'event ' || i, 'why' FROM n;
INSERT INTO campanile.processed_event (event_id, body_hash, status, instance, created_at)
SELECT 'event ' || i, 'hash', 'SUCCESS', 'test', now() FROM n;
INSERT INTO campanile.outbox (notification_id, channel, event_id, recipient_type, recipient_id,
    recipient_address, title, body,
                              priority, audience, shared_read, queue, chunk_id, created_at)
SELECT n.id, c.channel, 'event ' || i, 'CUSTOMER', i, 'address', 'title', 'body', 'NORMAL', 'audience', false,
       'queue ' || (i % 5), i, now()
FROM n, c;
INSERT INTO campanile.publish_chunk (queue, lane, first_id, last_id, lease_until)
SELECT 'queue ' || (i % 5), i % 3, id, id, CASE WHEN i % 2 = 0 THEN now() END FROM n;
INSERT INTO campanile.event_notification (event_id, entity_type, entity_id, shared_read)
SELECT 'event ' || i, 'RESTAURANT', i, true FROM n;
INSERT INTO campanile.notification (id, event_id, event_type, user_type, user_id, title, body, properties,
    priority, shared_read,
                                    created_at)
SELECT id, 'event ' || i, 'TYPE', 'CUSTOMER', i, 'title', 'body', '{}', 'NORMAL', false, now() FROM n;
INSERT INTO campanile.send_claim (instance, lease_until, notifications)
    SELECT 'test', now() + make_interval(secs => i), '{}' FROM n;
INSERT INTO campanile.send (notification_id, channel, recipient_address, status, lease, created_at)
SELECT n.id, c.channel, 'address', 'SENT', i, now() FROM n, c;
INSERT INTO campanile.send_due (channel, lane, due_at, notification_id)
SELECT 'EMAIL', i % 3, now() + make_interval(secs => i), id FROM n;
INSERT INTO campanile.send_attempt (notification_id, channel, at, outcome, duration_ms)
    SELECT id, 'EMAIL', now(), 'DUE', 5 FROM n;
INSERT INTO campanile.send_in_doubt (since, notification_id, channel) SELECT now() + make_interval(secs => i),
    id, 'EMAIL' FROM n;
INSERT INTO campanile.send_address (notification_id, channel, address, outcome, at)
SELECT n.id, c.channel, 'address', 'SENT', now() FROM n, c;
INSERT INTO campanile.send_once (event_id, channel, address_hash, notification_id, at)
    SELECT 'event ' || i, 'SLACK', 'hash', id, now() FROM n;
INSERT INTO campanile.captured_message (event_id, user_type, user_id, channel, address, title, body, at)
SELECT 'event ' || i, 'CUSTOMER', i, 'EMAIL', 'address', 'title', 'body', now() FROM n;
INSERT INTO campanile.dead_letter (stage, event_id, reason, error, created_at)
SELECT 'send', 'event ' || i, 'EXHAUSTED', 'busy', now() FROM n;
INSERT INTO campanile.entity (entity_type, entity_id, kind) SELECT 'RESTAURANT', i, 'KIND ' || (i % 5) FROM n;
INSERT INTO campanile.recipient (user_type, user_id, entity_type, entity_id, role, active)
SELECT 'RESTAURANT_USER', i, 'RESTAURANT', i / 5, CASE WHEN i % 5 = 0 THEN 'MANAGER' ELSE 'WAITER' END,
    i % 20 <> 0 FROM n;
INSERT INTO campanile.api_key (id, name, prefix, hash, scopes, created_at)
SELECT 'key ' || i, 'name', 'cpk_' || i, 'hash', '[]', now() FROM n;
INSERT INTO campanile.audit (at, actor_kind, actor_id, actor_name, action, object_type, object_id)
SELECT now(), 'API_KEY', 'key ' || (i % 20), 'name', 'PUT', 'type ' || (i % 10), i FROM n;
INSERT INTO campanile.idempotency_key (caller, key, request_hash, fence, created_at, lease_until)
SELECT 'key ' || (i % 20), i, 'hash', 1, now() + make_interval(secs => i), now() FROM n;
INSERT INTO campanile.dead_address (channel, address, reason, at) SELECT 'EMAIL', i, 'gone', now() FROM n;
INSERT INTO campanile.user_notification_preferences (user_type, user_id, channel) SELECT 'CUSTOMER', i, 'EMAIL' FROM n;
INSERT INTO campanile.entity_notification_settings (entity_type, entity_id, kind, channel)
SELECT 'RESTAURANT', CASE WHEN i % 50 = 0 THEN '*' ELSE i::text END,
    CASE WHEN i % 50 = 0 THEN 'KIND ' || i ELSE '*' END, 'EMAIL'
FROM n;
INSERT INTO campanile.event_type_channel_routing (event_type, channel) SELECT 'TYPE ' || i, 'EMAIL' FROM n;
INSERT INTO campanile.event_audience (event_type, name, recipient_type) SELECT 'TYPE ' || i, 'all', 'CUSTOMER' FROM n;
INSERT INTO campanile.template (event_type, title) SELECT 'TYPE ' || i, 'title' FROM n;
DROP TABLE n, c;
";
