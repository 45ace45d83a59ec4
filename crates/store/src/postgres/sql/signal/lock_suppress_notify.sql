-- While somebody holds this, campanile.emit notifies nobody. Let go at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.suppress_notify', 0)) AS acquired
