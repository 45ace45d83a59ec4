-- Forgets a key whose request had no answer that could be repeated. Uses the primary key.
DELETE FROM idempotency_key WHERE caller = :caller AND key = :key AND fence = :fence AND status IS NULL
