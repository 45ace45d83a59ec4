-- Records a use, at most once a minute. Uses the unique index on id.
UPDATE api_key SET last_used_at = :now
WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :minute_ago)
