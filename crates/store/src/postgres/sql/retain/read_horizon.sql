-- The horizon and the time: at most one row. Primary key.
SELECT horizon, version, campanile.now() AS now FROM campanile.retain_horizon WHERE id = 1
