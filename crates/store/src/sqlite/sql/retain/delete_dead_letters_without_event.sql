-- Deletes old dead letters without an event, such as those of forged messages. Uses the index dead_letter_event,
-- starting with the oldest.
DELETE FROM dead_letter
WHERE id IN (
    SELECT id
    FROM (SELECT id, created_at FROM dead_letter WHERE event_id IS NULL ORDER BY id LIMIT :limit)
    WHERE created_at < :before)
