-- Adds a key, which signs from now on.
INSERT INTO signing_key (id, secret, created_at)
SELECT coalesce(max(id), 0) + 1, :secret, :now FROM signing_key
RETURNING id
