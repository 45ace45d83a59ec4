-- Records event ids, their hashes and the decisions. A failed event may be retried; any other event is decided once.
-- Uses the primary key.
INSERT INTO campanile.processed_event AS p (event_id, body_hash, status, recipients, sends, counts, decisions, instance,
                                            created_at)
SELECT n.event_id, n.body_hash, n.status, n.recipients, n.sends, n.counts::json, n.decisions::json, $8, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
     AS n (event_id, body_hash, status, recipients, sends, counts, decisions)
ORDER BY n.event_id
ON CONFLICT (event_id) DO UPDATE
SET body_hash = excluded.body_hash, status = excluded.status, recipients = excluded.recipients, sends = excluded.sends,
    counts = excluded.counts, decisions = excluded.decisions, instance = excluded.instance,
    created_at = CASE WHEN p.status = 'FAILED' THEN excluded.created_at ELSE p.created_at END
WHERE p.status <> 'SUCCESS'
