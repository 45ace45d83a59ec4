-- Stores the answer of the request that holds the key. Uses the primary key.
UPDATE campanile.idempotency_key SET status = $4, content_type = $5, body = $6
WHERE caller = $1 AND key = $2 AND fence = $3 AND status IS NULL
