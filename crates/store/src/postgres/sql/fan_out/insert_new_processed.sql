-- Records event ids that were never recorded before. Uses the primary key, which is searched once.
INSERT INTO campanile.processed_event (event_id, body_hash, status, recipients, sends, counts, decisions, instance,
                                       created_at)
SELECT n.event_id, n.body_hash, n.status, n.recipients, n.sends, n.counts::json, n.decisions::json, $8, campanile.now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
     AS n (event_id, body_hash, status, recipients, sends, counts, decisions)
ORDER BY n.event_id
