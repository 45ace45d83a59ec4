-- Deletes the records of which sends sent an event to shared addresses. Uses a prefix of the primary key.
DELETE FROM campanile.send_once
WHERE (event_id, channel, address_hash) IN (
    SELECT event_id, channel, address_hash FROM campanile.send_once
    WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)
    LIMIT $2)
