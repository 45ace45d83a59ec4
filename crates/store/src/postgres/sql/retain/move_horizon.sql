-- Moves the horizon, unless another instance has moved it since it was read. Uses the primary key.
UPDATE campanile.retain_horizon SET horizon = $1, version = version + 1 WHERE id = 1 AND version = $2
