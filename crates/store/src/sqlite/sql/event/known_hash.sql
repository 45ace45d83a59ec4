-- What is remembered of an id for ever, after its event is gone. Primary key.
SELECT body_hash FROM processed_event WHERE event_id = :event_id
