-- Moves the horizon, unless somebody else has looked at it meanwhile. Primary key.
UPDATE campanile.retain_horizon SET horizon = $1, version = version + 1 WHERE id = 1 AND version = $2
