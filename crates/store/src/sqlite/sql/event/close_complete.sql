-- Closes an event whose rows were all received, as counted by the caller. Uses the primary key.
UPDATE event_outbox
SET status = 'PROCESSED', processed_at = :now
WHERE id = :id AND status = 'PUBLISHED'
