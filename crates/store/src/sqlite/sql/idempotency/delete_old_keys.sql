-- Deletes keys that are too old to be remembered. Uses idempotency_key_age.
DELETE FROM idempotency_key WHERE (caller, key) IN (
    SELECT caller, key FROM idempotency_key WHERE created_at <= :forgotten_before ORDER BY created_at LIMIT :limit)
