-- Claims whose lease has passed. Index send_claim_expiry.
SELECT id, notifications FROM send_claim WHERE lease_until < :now ORDER BY lease_until LIMIT :limit
