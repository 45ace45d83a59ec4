-- Decisions are kept as long as their event; id and hash for ever. Primary keys.
UPDATE campanile.processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1) AND decisions IS NOT NULL
