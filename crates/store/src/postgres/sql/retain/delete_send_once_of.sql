-- Deletes who posted an event to shared webhooks. Prefix of the primary key.
DELETE FROM campanile.send_once
WHERE (event_id, address_hash) IN (
    SELECT event_id, address_hash FROM campanile.send_once
    WHERE event_id = (SELECT event_id FROM campanile.event_outbox WHERE id = $1)
    LIMIT $2)
