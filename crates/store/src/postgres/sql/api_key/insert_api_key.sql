-- Creates a key.
INSERT INTO campanile.api_key (id, name, prefix, hash, scopes, created_at, expires_at)
VALUES ($1, $2, $6, $3, $4::text::json, campanile.now(), $5)
RETURNING created_at
