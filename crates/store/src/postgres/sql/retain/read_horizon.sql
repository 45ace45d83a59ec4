-- Reads the horizon and the current time: at most one row. Uses the primary key.
SELECT horizon, version, campanile.now() AS now FROM campanile.retain_horizon WHERE id = 1
