-- One rotation at a time. The lock is released at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.signing_key', 0))
