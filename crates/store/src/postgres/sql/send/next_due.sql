-- Reads when the next send of a channel is due, from the first send of each lane. Uses the primary key.
SELECT min(first.due_at) AS due_at
FROM generate_series(0, 2) AS l (lane)
CROSS JOIN LATERAL (SELECT due_at FROM campanile.send_due WHERE channel = $1 AND lane = l.lane::smallint
                    ORDER BY due_at LIMIT 1) first
