-- Tells every instance that something waits; many in a row are told once.
SELECT pg_notify('campanile', $1)
