-- The horizon: one row at most. Primary key.
SELECT horizon, version FROM retain_horizon WHERE id = 1
