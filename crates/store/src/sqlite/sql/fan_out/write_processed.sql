-- Records an event id, its hash and the decisions. A failed event may be retried; any other event is decided once. Uses
-- the primary key.
INSERT INTO processed_event (event_id, body_hash, status, recipients, sends, counts, decisions, instance, created_at)
VALUES (:event_id, :body_hash, :status, :recipients, :sends, :counts, :decisions, :instance, :now)
ON CONFLICT (event_id) DO UPDATE
SET body_hash = excluded.body_hash, status = excluded.status, recipients = excluded.recipients, sends = excluded.sends,
    counts = excluded.counts, decisions = excluded.decisions, instance = excluded.instance,
    created_at = CASE WHEN processed_event.status = 'FAILED' THEN excluded.created_at
        ELSE processed_event.created_at END
WHERE processed_event.status <> 'SUCCESS'
