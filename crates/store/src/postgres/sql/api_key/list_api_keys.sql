-- A page of keys, the newest first. Uses the primary key.
SELECT seq, id, name, prefix, hash, scopes, created_at, last_used_at, expires_at, revoked_at
FROM campanile.api_key WHERE seq < $1 ORDER BY seq DESC LIMIT $2
