-- The hash of this id, which stays for ever after its event is deleted. Primary key.
SELECT body_hash FROM processed_event WHERE event_id = :event_id
