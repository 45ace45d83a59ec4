-- Not while a replay brings rows back: what is seen here must be what is closed. The lock is let go at commit.
SELECT pg_try_advisory_xact_lock_shared(hashtextextended('campanile.history', 0)) AS acquired
