-- Takes the earliest due sends of a channel and lane. Uses the primary key. SQLite may return them in any order.
DELETE FROM send_due
WHERE (channel, lane, due_at, notification_id) IN (
    SELECT channel, lane, due_at, notification_id FROM send_due
    WHERE channel = :channel AND lane = :lane AND due_at <= :now
    ORDER BY due_at
    LIMIT :limit)
RETURNING due_at, notification_id
