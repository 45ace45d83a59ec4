-- Inserts new events and returns them. Events with known ids are left unchanged. Ids rise in the order of the arrays.
-- Rows are written in key order, so that two batches never deadlock. Uses the unique index on event_id.
WITH n AS MATERIALIZED (
    SELECT nextval('campanile.event_outbox_id_seq') AS id, input.*
    FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                               $7::timestamptz[])
                        WITH ORDINALITY AS g (event_id, event_type, aggregate_type, aggregate_id, payload, priority,
                                              occurred_at, ordinal)
          ORDER BY ordinal) input)
INSERT INTO campanile.event_outbox (id, event_id, event_type, aggregate_type, aggregate_id, payload, priority,
                                    occurred_at)
OVERRIDING SYSTEM VALUE
SELECT n.id, n.event_id, n.event_type, n.aggregate_type, n.aggregate_id, n.payload::json, n.priority, n.occurred_at
FROM n
ORDER BY n.event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id
