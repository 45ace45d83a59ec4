-- Closes an event of which the caller counted that every row was received. Primary key.
UPDATE event_outbox
SET status = 'PROCESSED', processed_at = :now
WHERE id = :id AND status = 'PUBLISHED'
