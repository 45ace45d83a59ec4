-- Reopens an event that has a row to deliver again. The event is closed again after that row was received. Uses the
-- unique index on event_id.
UPDATE campanile.event_outbox SET status = 'PUBLISHED', processed_at = NULL WHERE event_id = $1 AND status = 'PROCESSED'
