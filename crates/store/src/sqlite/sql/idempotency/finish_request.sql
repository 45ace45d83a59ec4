-- Stores the answer of the request that holds the key. Uses the primary key.
UPDATE idempotency_key SET status = :status, content_type = :content_type, body = :body
WHERE caller = :caller AND key = :key AND fence = :fence AND status IS NULL
