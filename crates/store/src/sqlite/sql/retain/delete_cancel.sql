-- Deletes the cancellation of an event. Uses the primary key.
DELETE FROM event_cancel WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
