-- Deletes who posted an event to shared webhooks. Prefix of the primary key.
DELETE FROM send_once
WHERE (event_id, address_hash) IN (
    SELECT event_id, address_hash FROM send_once
    WHERE event_id = (SELECT event_id FROM event_outbox WHERE id = :id)
    LIMIT :limit)
