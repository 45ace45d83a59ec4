-- Writes of one table follow each other, so that each records the rows that it replaces: a row that is not there yet
-- cannot be locked. The lock is released at commit.
SELECT pg_advisory_xact_lock(hashtextextended('campanile.write.' || $1, 0))
