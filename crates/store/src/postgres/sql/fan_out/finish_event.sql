-- Ends or advances fan-outs, if their cursors have not changed since the claim read them. Uses the primary key. The
-- claim holds the locks.
UPDATE campanile.event_outbox e
SET status = s.status, fan_out_cursor = s.cursor_after, last_error = s.error,
    published_at = CASE WHEN s.status IN ('PUBLISHED', 'PROCESSED') THEN campanile.now() ELSE e.published_at END,
    processed_at = CASE WHEN s.status = 'PROCESSED' THEN campanile.now() ELSE e.processed_at END
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])
     AS s (id, status, cursor_after, error, cursor_before)
WHERE e.id = s.id AND e.status = 'PENDING' AND e.fan_out_cursor IS NOT DISTINCT FROM s.cursor_before
