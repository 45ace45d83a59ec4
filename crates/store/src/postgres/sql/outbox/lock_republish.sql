-- Takes the lock for republishing. One instance at a time puts lost rows into chunks, and the next one finds nothing to
-- do. The lock is released at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.republish', 0))
