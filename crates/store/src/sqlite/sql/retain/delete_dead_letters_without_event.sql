-- Dead letters of no event, such as those of forged messages: the old ones among the first. Index dead_letter_event.
DELETE FROM dead_letter
WHERE id IN (
    SELECT id
    FROM (SELECT id, created_at FROM dead_letter WHERE event_id IS NULL ORDER BY id LIMIT :limit)
    WHERE created_at < :before)
