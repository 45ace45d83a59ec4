-- Makes the first key. Of several instances that start at once, one succeeds.
INSERT INTO signing_key (id, secret, created_at)
SELECT 1, :secret, :now WHERE NOT EXISTS (SELECT 1 FROM signing_key)
