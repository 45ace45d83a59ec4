-- A key that could not be taken. Uses the primary key.
SELECT request_hash, status, content_type, body, lease_until
FROM idempotency_key WHERE caller = :caller AND key = :key
