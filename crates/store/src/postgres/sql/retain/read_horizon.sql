-- The horizon, and what time it is: one row at most. Primary key.
SELECT horizon, version, campanile.now() AS now FROM campanile.retain_horizon WHERE id = 1
