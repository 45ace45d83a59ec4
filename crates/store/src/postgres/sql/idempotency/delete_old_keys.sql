-- Deletes keys that are too old to be remembered. Uses idempotency_key_age.
DELETE FROM campanile.idempotency_key WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM campanile.idempotency_key
    WHERE created_at <= campanile.now() - make_interval(secs => $1) ORDER BY created_at LIMIT $2))
