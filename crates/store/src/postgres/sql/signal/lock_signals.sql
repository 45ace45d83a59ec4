-- While somebody holds this, campanile.emit notifies nobody. Let go at commit.
SELECT pg_try_advisory_xact_lock(hashtextextended('campanile.signals', 0)) AS alone
