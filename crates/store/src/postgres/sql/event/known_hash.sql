-- The hashes of these ids, which stay for ever after their events are deleted. Primary key.
SELECT p.event_id, p.body_hash
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.processed_event p ON p.event_id = n.event_id
