-- Makes the first key. Of several instances that start at once, one succeeds.
INSERT INTO campanile.signing_key (id, secret, created_at)
SELECT 1, $1, campanile.now() WHERE NOT EXISTS (SELECT FROM campanile.signing_key)
ON CONFLICT DO NOTHING
