-- Creates a key.
INSERT INTO api_key (id, name, hash, scopes, created_at, expires_at)
VALUES (:id, :name, :hash, :scopes, :now, :expires_at)
