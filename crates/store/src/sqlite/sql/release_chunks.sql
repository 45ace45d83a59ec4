-- At start: the same for chunks. There are few.
UPDATE publish_chunk SET lease_until = NULL WHERE lease_until IS NOT NULL
