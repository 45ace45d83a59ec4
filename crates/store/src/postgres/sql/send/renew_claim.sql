-- Renews claims that have not expired. An expired claim is left for another instance to take over. Uses the primary
-- key.
UPDATE campanile.send_claim SET lease_until = campanile.now() + make_interval(secs => $2)
WHERE id = ANY ($1::bigint[]) AND lease_until >= campanile.now()
RETURNING id
