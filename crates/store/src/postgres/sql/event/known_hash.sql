-- Reads the hashes of the given ids. They are never deleted, even after their events are deleted. Uses the primary key.
SELECT p.event_id, p.body_hash
FROM unnest($1::text[]) AS n (event_id)
JOIN campanile.processed_event p ON p.event_id = n.event_id
