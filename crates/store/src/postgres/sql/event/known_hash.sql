-- What is remembered of these ids for ever, after their events are gone. Primary key.
SELECT p.event_id, p.body_hash
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.processed_event p ON p.event_id = n.event_id
