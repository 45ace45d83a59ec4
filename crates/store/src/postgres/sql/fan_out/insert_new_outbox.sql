-- Inserts outbox rows of events for which nothing was written before, so that no key is searched twice. If a row exists
-- anyway, the whole fan-out is rejected and bisected. Compared with insert_outbox: 13 → 7.5 µs a row (decision 0024).
INSERT INTO campanile.outbox (notification_id, channel, event_id, recipient_type, recipient_id, recipient_address,
                              title, body, inbox_title, inbox_body, priority, audience, entity_type, entity_id,
                              shared_read, queue, chunk_id, status, last_error, created_at)
SELECT n.*, campanile.now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::text[], $17::bigint[],
            $18::text[], $19::text[]) AS n
