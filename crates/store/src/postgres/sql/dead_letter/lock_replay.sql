-- One replay at a time, and nobody closes events or forgets them meanwhile; the lock is let go at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.history', 0))
