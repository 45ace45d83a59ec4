-- Deletes the records of which sends sent an event to shared addresses. Uses a prefix of the primary key.
DELETE FROM send_once
WHERE (event_id, channel, address_hash) IN (
    SELECT event_id, channel, address_hash FROM send_once
    WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
    LIMIT :limit)
