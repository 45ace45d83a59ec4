-- One instance at a time runs retention. The lock ends at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.history', 0)) AS acquired
