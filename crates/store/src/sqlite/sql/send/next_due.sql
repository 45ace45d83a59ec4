-- Reads when the next send of a channel is due, from the first send of each lane. Uses the primary key.
SELECT min(due_at) FROM (
    SELECT (SELECT due_at FROM send_due WHERE channel = :channel AND lane = 0 ORDER BY due_at LIMIT 1) AS due_at
    UNION ALL SELECT (SELECT due_at FROM send_due WHERE channel = :channel AND lane = 1 ORDER BY due_at LIMIT 1)
    UNION ALL SELECT (SELECT due_at FROM send_due WHERE channel = :channel AND lane = 2 ORDER BY due_at LIMIT 1))
