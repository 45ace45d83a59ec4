-- The key that a request presents. Uses the unique index on id.
SELECT id, name, prefix, hash, scopes, created_at, last_used_at, expires_at, revoked_at
FROM api_key WHERE id = :id
