-- Nothing is closed while a replay, which holds this lock alone, brings rows back. Does not wait. The lock ends at
-- commit.
SELECT pg_try_advisory_xact_lock_shared(hashtextextended('campanile.history', 0)) AS acquired
