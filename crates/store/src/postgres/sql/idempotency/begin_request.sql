-- Takes a key if it is new, too old to be remembered, or held by a request of the same content that died. The fence
-- tells such requests apart. Uses the primary key.
INSERT INTO campanile.idempotency_key AS k (caller, key, request_hash, fence, created_at, lease_until)
VALUES ($1, $2, $3, 1, campanile.now(), campanile.now() + make_interval(secs => $4))
ON CONFLICT (caller, key) DO UPDATE
SET request_hash = excluded.request_hash, fence = k.fence + 1, created_at = excluded.created_at,
    lease_until = excluded.lease_until, status = NULL, content_type = NULL, body = NULL
WHERE k.created_at <= campanile.now() - make_interval(secs => $5)
   OR k.status IS NULL AND k.lease_until <= campanile.now() AND k.request_hash = excluded.request_hash
RETURNING fence
