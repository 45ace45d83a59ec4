-- Reads since when the oldest item of each stage has been waiting. Reads only the beginnings of queues, so a backlog
-- costs no more than a single row. Uses these indexes:
-- - event_outbox_new and event_outbox_continuing (partial indexes): the first event of each lane.
-- - publish_chunk_pkey: the first hundred chunks, each with its first row by outbox_pkey.
-- - event_outbox_open: the first thousand events, because fan-outs do not follow arrivals exactly.
-- - send_due_pkey: the first send of each channel and lane.
-- - send_claim_expiry.
-- Nothing is locked.
SELECT campanile.now() AS now,
       (SELECT min(least(
            (SELECT created_at FROM campanile.event_outbox
             WHERE status = 'PENDING' AND fan_out_cursor IS NULL AND lane = l.lane::smallint ORDER BY id LIMIT 1),
            (SELECT created_at FROM campanile.event_outbox
             WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND lane = l.lane::smallint ORDER BY id LIMIT 1)))
        FROM generate_series(0, 2) AS l (lane)) AS fan_out,
       (SELECT min((SELECT created_at FROM campanile.outbox
                    WHERE notification_id BETWEEN c.first_id AND c.last_id ORDER BY notification_id LIMIT 1))
        FROM (SELECT first_id, last_id FROM campanile.publish_chunk ORDER BY id LIMIT 100) c) AS publish,
       (SELECT min(coalesce(o.published_at, o.created_at))
        FROM (SELECT published_at, created_at FROM campanile.event_outbox
              WHERE status = 'PUBLISHED' ORDER BY id LIMIT 1000) o) AS receive,
       least((SELECT min(least(
                  (SELECT due_at FROM campanile.send_due WHERE channel = c.channel AND lane = 0 ORDER BY due_at
                   LIMIT 1),
                  (SELECT due_at FROM campanile.send_due WHERE channel = c.channel AND lane = 1 ORDER BY due_at
                   LIMIT 1),
                  (SELECT due_at FROM campanile.send_due WHERE channel = c.channel AND lane = 2 ORDER BY due_at
                   LIMIT 1)))
              FROM unnest($1::text[]) AS c (channel)),
             (SELECT lease_until FROM campanile.send_claim
              WHERE lease_until < campanile.now() ORDER BY lease_until LIMIT 1)) AS send
