-- A page of keys, the newest first. Uses the primary key.
SELECT seq, id, name, prefix, hash, scopes, created_at, last_used_at, expires_at, revoked_at
FROM api_key WHERE seq < :before ORDER BY seq DESC LIMIT :limit
