-- Claims new events by lane, up to the given lane, then by age. Uses the partial index event_outbox_new, in each lane
-- from the watermark on. Events that another claim holds are skipped and joined to nothing. Lanes are read one after
-- the other, in the order of the array. The join can only be a nested loop, so no rows beyond the limit are locked.
WITH claimed AS MATERIALIZED (
    SELECT e.*
    FROM unnest($2::bigint[]) WITH ORDINALITY AS watermark (id, ordinal),
    LATERAL (SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload, e.priority,
                    e.occurred_at, e.created_at, e.fan_out_cursor, e.lane
             FROM campanile.event_outbox e
             WHERE e.status = 'PENDING' AND e.fan_out_cursor IS NULL AND e.lane = (watermark.ordinal - 1)::smallint
               AND e.id > watermark.id
             ORDER BY e.id
             LIMIT $1
             FOR UPDATE OF e SKIP LOCKED) e
    LIMIT $1)
SELECT e.id, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload::text, e.priority, e.occurred_at,
       e.created_at, e.fan_out_cursor, p.status AS processed, c.event_id IS NOT NULL AS cancelled, c.reason,
       campanile.now() AS now, e.lane
FROM claimed e
LEFT JOIN campanile.processed_event p ON p.event_id = e.event_id
LEFT JOIN campanile.event_cancel c ON c.event_id = e.event_id
ORDER BY e.lane, e.id
