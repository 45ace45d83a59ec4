-- Reads the hash of the given id. It is never deleted, even after its event is deleted. Uses the primary key.
SELECT body_hash FROM processed_event WHERE event_id = :event_id
