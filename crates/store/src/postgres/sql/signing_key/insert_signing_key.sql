-- Adds a key, which signs from now on. The caller holds the lock.
INSERT INTO campanile.signing_key (id, secret, created_at)
SELECT coalesce(max(id), 0) + 1, $1, campanile.now() FROM campanile.signing_key
RETURNING id
