-- Takes the lock for closing events, without waiting. A replay holds this lock exclusively, so no event is closed while
-- the replay puts rows back. The lock is released at commit.
SELECT pg_try_advisory_xact_lock_shared(hashtextextended('campanile.history', 0)) AS acquired
