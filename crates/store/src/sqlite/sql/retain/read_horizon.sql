-- The horizon: at most one row. Primary key.
SELECT horizon, version FROM retain_horizon WHERE id = 1
