-- Takes the lock for retention, so that one instance at a time runs it. The lock is released at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.history', 0)) AS acquired
