-- Moves the horizon, unless another instance has moved it since it was read. Uses the primary key.
UPDATE retain_horizon SET horizon = :horizon, version = version + 1 WHERE id = 1 AND version = :version
