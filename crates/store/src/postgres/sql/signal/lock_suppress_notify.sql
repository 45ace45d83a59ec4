-- Takes the lock that suppresses NOTIFY. While an instance holds it, campanile.emit sends no NOTIFY. The lock is
-- released at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.suppress_notify', 0)) AS acquired
