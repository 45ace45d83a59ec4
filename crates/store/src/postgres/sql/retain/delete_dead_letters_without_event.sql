-- Deletes old dead letters without an event, such as those of forged messages. Uses the index dead_letter_event,
-- starting with the oldest.
DELETE FROM campanile.dead_letter
WHERE id IN (
    SELECT id
    FROM (SELECT id, created_at FROM campanile.dead_letter WHERE event_id IS NULL ORDER BY event_id, id LIMIT $2) first
    WHERE created_at < $1::timestamptz)
