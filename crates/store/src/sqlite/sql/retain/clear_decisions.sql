-- Decisions are kept as long as their event; id and hash for ever. Primary keys.
UPDATE processed_event
SET decisions = NULL
WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id) AND decisions IS NOT NULL
