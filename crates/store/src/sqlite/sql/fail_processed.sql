-- What had begun and failed may be redone: without this a replay would take the event for done. Primary key.
UPDATE processed_event SET status = 'FAILED' WHERE event_id = :event_id AND status = 'PROCESSING'
