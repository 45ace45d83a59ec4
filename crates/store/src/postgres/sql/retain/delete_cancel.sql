-- Deletes the cancellation of an event. Uses the primary key.
DELETE FROM campanile.event_cancel WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)
