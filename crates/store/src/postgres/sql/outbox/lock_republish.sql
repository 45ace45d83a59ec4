-- One instance at a time puts lost rows into chunks; the next one finds nothing to do. The lock ends at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.republish', 0))
