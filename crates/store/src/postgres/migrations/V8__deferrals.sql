-- Sends that were deferred: since when, and how often; and those whose provider had the whole message and did not answer. All are null
-- for nearly every send, which costs nothing.
ALTER TABLE campanile.send ADD COLUMN deferred_since timestamptz, ADD COLUMN deferrals integer, ADD COLUMN unanswered boolean;

CREATE OR REPLACE VIEW campanile.notification_channel_send AS
SELECT s.notification_id || ':' || s.channel AS id, s.notification_id, s.channel, s.recipient_address, s.status,
       s.attempt_count, d.due_at AS next_attempt_at, s.lease, c.lease_until, s.provider, s.external_id, s.receipt,
       s.receipt_at, s.last_error, s.created_at, s.sent_at, s.deferred_since, coalesce(s.deferrals, 0) AS deferrals
FROM campanile.send s
LEFT JOIN campanile.send_due d ON d.notification_id = s.notification_id AND d.channel = s.channel
LEFT JOIN campanile.send_claim c ON c.id = s.lease AND s.status = 'SENDING';
