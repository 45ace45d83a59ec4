-- Reads claims whose lease has expired. Uses the index send_claim_expiry.
SELECT id, notifications FROM send_claim WHERE lease_until < :now ORDER BY lease_until LIMIT :limit
