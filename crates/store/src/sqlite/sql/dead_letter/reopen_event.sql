-- An event of which a row waits again: it is closed once more when that has arrived. Unique index on event_id.
UPDATE event_outbox SET status = 'PUBLISHED', processed_at = NULL WHERE event_id = :event_id AND status = 'PROCESSED'
