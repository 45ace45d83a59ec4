-- Closes an event whose every row was received, as somebody counted. Primary key.
UPDATE event_outbox
SET status = 'PROCESSED', processed_at = :now
WHERE id = :id AND status = 'PUBLISHED'
