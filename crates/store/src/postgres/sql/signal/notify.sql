-- Notifies every instance that there is work.
SELECT pg_notify('campanile', $1)
