-- One instance at a time forgets; the lock is let go at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.history', 0)) AS acquired
