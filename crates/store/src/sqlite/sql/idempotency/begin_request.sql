-- Takes a key if it is new, too old to be remembered, or held by a request of the same content that died. The fence
-- tells such requests apart. Uses the primary key.
INSERT INTO idempotency_key (caller, key, request_hash, fence, created_at, lease_until)
VALUES (:caller, :key, :request_hash, 1, :now, :lease_until)
ON CONFLICT (caller, key) DO UPDATE
SET request_hash = excluded.request_hash, fence = idempotency_key.fence + 1, created_at = excluded.created_at,
    lease_until = excluded.lease_until, status = NULL, content_type = NULL, body = NULL
WHERE idempotency_key.created_at <= :forgotten_before
   OR idempotency_key.status IS NULL AND idempotency_key.lease_until <= :now
      AND idempotency_key.request_hash = excluded.request_hash
RETURNING fence
