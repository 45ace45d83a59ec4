-- One instance at a time puts lost rows into chunks; the others then find nothing to do. The lock is let go at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.republish', 0))
