-- Forgets a key whose request had no answer that could be repeated. Uses the primary key.
DELETE FROM campanile.idempotency_key WHERE caller = $1 AND key = $2 AND fence = $3 AND status IS NULL
