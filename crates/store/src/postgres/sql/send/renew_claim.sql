-- Holders renew claims that have not expired yet; an expired one is left to whoever takes it over. Primary key.
UPDATE campanile.send_claim SET lease_until = campanile.now() + make_interval(secs => $2)
WHERE id = ANY ($1::bigint[]) AND lease_until >= campanile.now()
RETURNING id
