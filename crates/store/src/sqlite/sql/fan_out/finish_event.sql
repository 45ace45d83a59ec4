-- Ends or advances the fan-out of an event, if its cursor has not changed since the claim read it. Uses the primary
-- key.
UPDATE event_outbox
SET status = :status, fan_out_cursor = :cursor_after, last_error = :error,
    published_at = CASE WHEN :status = 'PUBLISHED' OR :status = 'PROCESSED' THEN :now ELSE published_at END,
    processed_at = CASE WHEN :status = 'PROCESSED' THEN :now ELSE processed_at END
WHERE id = :id AND status = 'PENDING' AND fan_out_cursor IS :cursor_before
