-- Closes events whose rows were all received, as counted by the caller. Uses the primary key. The condition on the
-- status is written so that it does not match event_outbox_open. A planner without statistics would assume that this
-- index is small, and would scan it.
UPDATE campanile.event_outbox e
SET status = 'PROCESSED', processed_at = campanile.now()
FROM unnest($1::bigint[]) AS n (id)
WHERE e.id = n.id AND e.status || '' = 'PUBLISHED'
