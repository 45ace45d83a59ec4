-- A key that could not be taken. Uses the primary key.
SELECT request_hash, status, content_type, body,
       greatest(extract(epoch FROM lease_until - campanile.now())::float8, 0) AS remaining
FROM campanile.idempotency_key WHERE caller = $1 AND key = $2
