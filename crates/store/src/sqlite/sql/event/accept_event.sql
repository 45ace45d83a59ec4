-- Inserts one new event. An event with a known id is left unchanged. Uses the unique index on event_id.
INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, priority, occurred_at,
                          created_at)
VALUES (:event_id, :event_type, :aggregate_type, :aggregate_id, :payload, :priority, :occurred_at, :now)
ON CONFLICT (event_id) DO NOTHING
