-- Records a use, at most once a minute. Uses the unique index on id.
UPDATE campanile.api_key SET last_used_at = campanile.now()
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < campanile.now() - interval '1 minute')
