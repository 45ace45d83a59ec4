-- Sends of a channel and lane whose time has come, the earliest ones. Primary key; in which order they are answered is
-- SQLite's choice.
DELETE FROM send_due
WHERE (channel, lane, due_at, notification_id) IN (
    SELECT channel, lane, due_at, notification_id FROM send_due
    WHERE channel = :channel AND lane = :lane AND due_at <= :now
    ORDER BY due_at
    LIMIT :limit)
RETURNING due_at, notification_id
