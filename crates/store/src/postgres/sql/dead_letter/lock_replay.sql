-- Takes the lock of a replay. While it is held, no other replay runs, and no instance closes or deletes events. The
-- lock is released at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.history', 0))
