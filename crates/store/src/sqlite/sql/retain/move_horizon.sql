-- Moves the horizon, unless somebody else has looked at it meanwhile. Primary key.
UPDATE retain_horizon SET horizon = :horizon, version = version + 1 WHERE id = 1 AND version = :version
