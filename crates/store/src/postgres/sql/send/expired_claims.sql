-- Reads claims whose lease has expired. Uses the index send_claim_expiry.
SELECT id, notifications FROM campanile.send_claim WHERE lease_until < campanile.now() ORDER BY lease_until LIMIT $1
