-- The horizon: one row at most. Primary key.
SELECT horizon, moves FROM retain_horizon WHERE id = 1
