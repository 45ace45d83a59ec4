-- Reads the horizon: at most one row. Uses the primary key.
SELECT horizon, version FROM retain_horizon WHERE id = 1
