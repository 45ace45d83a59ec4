-- While an instance holds this lock, campanile.emit sends no NOTIFY. The lock ends at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.suppress_notify', 0)) AS acquired
