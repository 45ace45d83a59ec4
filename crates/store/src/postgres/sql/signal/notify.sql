-- Notifies every instance that something waits.
SELECT pg_notify('campanile', $1)
