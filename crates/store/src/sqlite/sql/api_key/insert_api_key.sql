-- Creates a key.
INSERT INTO api_key (id, name, prefix, hash, scopes, created_at, expires_at)
VALUES (:id, :name, :prefix, :hash, :scopes, :now, :expires_at)
