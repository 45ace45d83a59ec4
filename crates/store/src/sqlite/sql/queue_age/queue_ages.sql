-- Reads since when the oldest item of each stage has been waiting. Reads only the beginnings of queues, so a backlog
-- costs no more than a single row. Uses these indexes:
-- - event_outbox_new and event_outbox_continuing (partial indexes): the first event of each lane.
-- - The key of publish_chunk: the first hundred chunks, each with its first row by the key of outbox.
-- - event_outbox_open: the first thousand events, because fan-outs do not follow arrivals exactly.
-- - The key of send_due: the first send of each channel and lane.
-- - send_claim_expiry.
SELECT (SELECT min(w.since) FROM (
            SELECT (SELECT created_at FROM event_outbox
                    WHERE status = 'PENDING' AND fan_out_cursor IS NULL AND lane = l.value ORDER BY id LIMIT 1) AS since
            FROM json_each('[0, 1, 2]') l
            UNION ALL
            SELECT (SELECT created_at FROM event_outbox
                    WHERE status = 'PENDING' AND fan_out_cursor IS NOT NULL AND lane = l.value ORDER BY id LIMIT 1)
            FROM json_each('[0, 1, 2]') l) w) AS fan_out,
       (SELECT min((SELECT created_at FROM outbox
                    WHERE notification_id BETWEEN c.first_id AND c.last_id ORDER BY notification_id LIMIT 1))
        FROM (SELECT first_id, last_id FROM publish_chunk ORDER BY id LIMIT 100) c) AS publish,
       (SELECT min(coalesce(o.published_at, o.created_at))
        FROM (SELECT published_at, created_at FROM event_outbox
              WHERE status = 'PUBLISHED' ORDER BY id LIMIT 1000) o) AS receive,
       (SELECT min(w.since) FROM (
            SELECT (SELECT due_at FROM send_due
                    WHERE channel = c.value AND lane = l.value ORDER BY due_at LIMIT 1) AS since
            FROM json_each(:channels) c, json_each('[0, 1, 2]') l
            UNION ALL
            SELECT (SELECT lease_until FROM send_claim
                    WHERE lease_until < :now ORDER BY lease_until LIMIT 1)) w) AS send
